# SPDX-License-Identifier: Apache-2.0
"""`python -m truestep` is `truestep`."""

from truestep.cli.main import main

if __name__ == "__main__":
    main()
