# SPDX-License-Identifier: Apache-2.0
"""Lays out files of a commit of a git mirror: MIRRORS/OWNER+NAME/repo, which may be bare and may lack objects."""

import subprocess


def mirror_of(mirrors, repo):
    """Return a repository's git directory below these mirrors; None where there is none."""
    base = mirrors / repo.replace("/", "+") / "repo"
    return next((each for each in (base / ".git", base) if (each / "HEAD").is_file()), None)


def git(mirror, *words, given=None):
    command = ["git", "-c", "safe.directory=*", f"--git-dir={mirror}", *words]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def files_of(mirror, commit, *folders):
    """Return the path of each plain file of a commit (in these folders) with its object and its size (0: not there)."""
    listed = git(mirror, "ls-tree", "-r", "-l", "-z", commit, "--", *folders).decode("utf-8", "replace")
    rows = [line.partition("\t") for line in listed.split("\0") if line.startswith("100")]
    heads = [(path, head.split()[2:]) for head, _, path in rows]
    return {path: (name, int(size) if size.isdigit() else 0) for path, (name, size) in heads}


def unpack(mirror, files, paths, into):
    """Write these files of a commit below a folder but those that the mirror lacks; return how many lines they have."""
    contents = git(mirror, "cat-file", "--batch", given="\n".join(files[path][0] for path in paths).encode())
    num_lines = 0
    for path in paths:
        head, _, contents = contents.partition(b"\n")
        if head.endswith(b"missing"):
            continue
        size = int(head.split()[2])
        into.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        into.joinpath(path).write_bytes(contents[:size])
        num_lines += contents[:size].count(b"\n")
        contents = contents[size + 1 :]
    return num_lines
