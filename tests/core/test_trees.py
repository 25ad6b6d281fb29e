# SPDX-License-Identifier: Apache-2.0
"""Trees are seen as their leaves, in order, and made again with the same shape."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from truestep.core.state_trees import map_tree_leaves, tree_leaves

trees = st.recursive(
    st.integers(),
    lambda inner: (
        st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


@given(trees)
def test_a_path_leads_to_its_leaf(tree):
    for path, leaf in tree_leaves(tree):
        found = tree
        for key in path:
            found = found[key]
        assert found is leaf


@given(trees)
def test_a_changed_tree_has_the_same_shape_and_every_leaf_changed(tree):
    changed = map_tree_leaves(lambda leaf: leaf + 1, tree)
    numbers = [(path, leaf) for path, leaf in tree_leaves(tree) if isinstance(leaf, int)]
    assert [(path, leaf + 1) for path, leaf in numbers] == [
        (path, leaf) for path, leaf in tree_leaves(changed) if isinstance(leaf, int)
    ]
    assert map_tree_leaves(lambda leaf: leaf - 1, changed) == tree


def test_an_empty_container_is_a_leaf_and_any_mapping_is_a_tree():
    assert list(tree_leaves({"a": [], "b": {}})) == [(("a",), []), (("b",), {})]
    assert list(tree_leaves(OrderedDict(a=(1, 2)))) == [(("a", 0), 1), (("a", 1), 2)]
