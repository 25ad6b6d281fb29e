# SPDX-License-Identifier: Apache-2.0
import re

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Explainer, Match


class ClassOfFileMissing(Explainer):
    """A file that holds a whole model is loaded where the model's class can't be found.

    Means: torch.save(model) stores no code but the path of its class, which must be importable when loading.

    Raises:
        import io, pickle

        pickle.loads(b"c__main__\\nNetThatIsGone\\n.")

    Works:
        import io

        file = io.BytesIO()
        torch.save(nn.Linear(2, 2).state_dict(), file)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)

    Fix: save model.state_dict(), and load it into a model that the script makes. To read such a file once, import or define
    the class under the same module and name.

    Cases:
        `No module named`: the file names the module {name}, in which the saved model's class stood.
            Fix: run from the project that has {name} (or put its folder on sys.path), then save model.state_dict() instead.
        otherwise: the file names the class {name}, which this script does not define or import.
    """

    messages = (
        r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>\w+)'",
        r"Can't get attribute '(?P<name>\w+)'",
    )
    checks = ("SAVE001",)

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Recognise it where a file is being loaded, not where workers send objects."""
        if any("multiprocessing" in frame.path and "spawn" in frame.path for frame in crash.frames):
            return None
        if "ModuleNotFoundError" in crash.type_names and _is_unpickling(crash):
            return re.search(r"No module named '(?P<name>[\w.]+)'", crash.message)
        return super().match(crash)


def _is_unpickling(crash: Crash) -> bool:
    last = crash.frames[-1] if crash.frames else None
    around = crash.context.splitlines()[-22:]
    nearby = "\n".join(around)
    if last is not None:
        nearby = f"{last.text} {last.path} {' '.join(frame.text for frame in crash.frames)}"
    return "unpickler.load()" in nearby or "pickle_module.load(" in nearby or "pickle.load(" in nearby
