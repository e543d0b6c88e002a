"""The tree over draws: public roots, the recursive definition of RFC 6962, paths, and the bytes of a leaf."""

import pytest

from lethe.certificates.merkle import Leaf, leaf_hash, node_hash, path, root

# Leaves and roots of the tests of certificate transparency: the root of the first k leaves, for k from 1 to 8.
LEAVES = [
    *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
    "606162636465666768696a6b6c6d6e6f",
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def is_included(leaf, index, size, beside, top):
    """Whether a path leads from the hash of leaf ``index`` of ``size`` to the root ``top`` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place = index
    last = size - 1
    found = leaf
    for node in beside:
        if last == 0:
            return False
        if place % 2 or place == last:
            found = node_hash(node, found)
            while place % 2 == 0 and place:
                place //= 2
                last //= 2
        else:
            found = node_hash(found, node)
        place //= 2
        last //= 2
    return last == 0 and found == top


def split_of(size):
    """The largest power of two below the size."""
    left = 1
    while left * 2 < size:
        left *= 2
    return left


def recursive_root(hashes):
    if len(hashes) == 1:
        return hashes[0]
    left = split_of(len(hashes))
    return node_hash(recursive_root(hashes[:left]), recursive_root(hashes[left:]))


def recursive_path(hashes, index):
    if len(hashes) == 1:
        return []
    left = split_of(len(hashes))
    if index < left:
        return [*recursive_path(hashes[:left], index), recursive_root(hashes[left:])]
    return [*recursive_path(hashes[left:], index - left), recursive_root(hashes[:left])]


def numbered(size):
    return [leaf_hash(number.to_bytes(4, "big")) for number in range(size)]


@pytest.mark.parametrize("size", range(1, 9))
def test_the_root_is_that_of_certificate_transparency(size):
    hashes = [leaf_hash(bytes.fromhex(leaf)) for leaf in LEAVES[:size]]

    assert root(hashes).hex() == ROOTS[size - 1]


@pytest.mark.parametrize("size", [*range(1, 34), 1000])
def test_roots_and_paths_are_those_of_the_recursive_definition(size):
    hashes = numbered(size)
    places = range(0, size, 1 + size // 40)

    assert root(hashes) == recursive_root(hashes)
    assert [path(hashes, place) for place in places] == [
        recursive_path(hashes, place) for place in places
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 21])
def test_a_path_shows_its_leaf_at_its_place_and_nothing_else(size):
    hashes = numbered(size)
    top = root(hashes)

    for place in range(size):
        beside = path(hashes, place)
        assert is_included(hashes[place], place, size, beside, top)
        assert not is_included(leaf_hash(b"other"), place, size, beside, top)
        assert not is_included(hashes[place], place, size, [*beside, top], top)
        if size > 1:
            other = (place + 1) % size
            assert not is_included(hashes[place], other, size, beside, top)
            assert not is_included(hashes[place], place, size, beside[:-1], top)


def test_a_place_outside_of_the_tree_is_in_none():
    hashes = numbered(3)

    assert not is_included(hashes[0], 3, 3, path(hashes, 0), root(hashes))


def test_a_leaf_is_the_shortest_json_of_its_fields():
    leaf = Leaf("q", 3, 'say "ä"\n', 5, None, 1)

    assert leaf.content() == '["lethe-leaf/1","q",3,"say \\"ä\\"\\n",5,null,1]'.encode()
