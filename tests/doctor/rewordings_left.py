# SPDX-License-Identifier: Apache-2.0
"""The examples that a rewording still hides or accuses: reason by reason, at most one in twenty."""

LEFT = {
    "aliased": (
        "the check follows the uses of a variable under one name",
        ("SAVE011 bad, SAVE016 bad"),
    ),
    "from_factory": (
        "the check reads an assignment of what is made to a name",
        (
            "DATA001 bad, DATA002 bad, DATA020 bad, GRAD010 bad, "
            "GRAD013 bad, LOSS014 bad, PARAM005 bad, PARAM007 bad, PARAM022 "
            "bad, SAVE002 bad, SCHED002 bad, VALUE014 bad, snippet 20 wrong, snippet 30 wrong, snippet 37 "
            "wrong, snippet 44 wrong, snippet 47 wrong, snippet 5 wrong"
        ),
    ),
    "helper": (
        "the check asks for both of its places in one function",
        ("EVAL043 bad"),
    ),
    "in_attributes": (
        "what an object holds belongs to no function, and needs no global",
        ("VALUE041 bad"),
    ),
    "in_dict": (
        "what a dict holds belongs to no function, and needs no global",
        ("VALUE041 bad"),
    ),
    "in_function": (
        "what is set for the process, or read from a command, stands at the top of a file; a fragment ends unread",
        ("DEV001 bad, VALUE041 bad, snippet 14 wrong, snippet 17 right, snippet 17 wrong, snippet 3 wrong"),
    ),
    "method": (
        "the check asks for both of its places in one function",
        ("EVAL043 bad"),
    ),
    "other_file": (
        "the check asks for both of its places in one file; what is only imported elsewhere is looked at there",
        ("AMP007 bad, EVAL043 bad, VALUE041 bad"),
    ),
    "other_names": (
        "the check goes by a name (a range of noise, a loss of the generator), and another says less",
        ("snippet 30 wrong"),
    ),
    "variable_between": (
        "the check reads what a call is given where the call is written",
        ("GRAD013 bad, GRAD040 bad, VALUE032 bad, snippet 20 wrong, snippet 3 wrong, snippet 40 wrong"),
    ),
}
