# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class WorkerDied(Explainer):
    """A data worker ended without saying why.

    Means: a signal killed it (out of memory, a full /dev/shm, a crash in a library) or the data set called exit.

    Raises:
        class Ends(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                os._exit(1)

        next(iter(DataLoader(Ends(), num_workers=1)))

    Works:
        class Goes(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return torch.zeros(1)

        next(iter(DataLoader(Goes(), num_workers=1)))

    Fix: run with num_workers=0: an exception of the data set is then shown with its line. If it runs so, memory is short:
    fewer workers, a smaller batch, more shared memory (--shm-size=8g).

    Cases:
        `Killed`: signal 9: the system killed the worker, nearly always as main memory was full.
            Fix: take fewer workers or a smaller batch, and keep no growing lists or whole data sets in the data set object.
        `Segmentation`: a crash inside of a library that the data set calls (often OpenCV or HDF5 after a fork).
            Fix: call cv2.setNumThreads(0), and open files (h5py, lmdb) in the first __getitem__, not in __init__, so that
            each worker has its own.
        `guard=`: the script has no main guard.
            Fix: put the script's actions under if __name__ == "__main__":.
    """

    messages = (
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) (?:exited unexpectedly|is killed by signal: (?P<signal>(?!Bus)[\w ]+))",
        r"DataLoader worker .*?is killed by signal: (?P<signal>(?!Bus)[\w ]+)",
        r"Pin memory thread exited unexpectedly",
    )
    besides = (r"(?P<guard>freeze_support|bootstrapping)",)
    not_in_a_log = "what killed the worker; dmesg on that machine shows an out-of-memory kill"
