# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ObjectNotPicklable(Explainer):
    """An object can't be sent to another process, or saved, as it is.

    Means: spawned workers and torch.save pickle objects; lambdas, local functions and classes, open files can't be pickled.

    Raises:
        loader = DataLoader(
            range(4), num_workers=1, multiprocessing_context="spawn", collate_fn=lambda samples: samples
        )
        next(iter(loader))

    Works:
        import pickle

        pickle.dumps(torch.utils.data.default_collate)

    Fix: define functions and classes at the top of a file and pass these (functools.partial for arguments) in place of
    lambdas; open files and connections in the worker's first __getitem__.

    Cases:
        `<lambda>`: {name} is a lambda.
        otherwise: {name} is defined inside of a function.
        otherwise: an object of type {kind} is stored in what is sent.
    """

    messages = (
        r"Can't (?:pickle|get) (?:local object )?(?:<function )?'?(?P<name>[\w.<>]*<(?:locals|lambda)>[\w.<>]*)",
        r"Can't get local object '(?P<name>[^']+)'",
        r"[Cc]an(?:'t|not) pickle '?(?P<kind>[\w.]+)'? objects?",
        r"Can't pickle (?P<what><[^>]+>|\w+)",
        r"no default __reduce__ due to non-trivial __cinit__",
        r"h5py objects cannot be pickled",
        r"TypeError: cannot serialize '(?P<kind>[\w.]+)' object",
    )
