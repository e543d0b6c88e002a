"""A finite automaton that reads normalised characters, composed with the spelling of tokens, and detects keywords.

The keyword scorer normalises whole texts (`lethe.scoring.typography`). All steps except NFKC work character by
character. NFKC does too, as long as every character starts its own segment, i.e. is neither reordered nor composed with the
preceding text (Unicode Standard Annex 15, section 9). A character that is left out before NFKC has no effect at all. Another
mark that does not start a segment leads to `DIRTY`: only the scorer itself can judge such a text.

A complete keyword is pending at first. A combining mark may still compose with its last character,
and under "word" the next character may continue the word. Only the next character that starts a
segment, or the end of the text, turns it into a leak. Marks of emphasis and breaks of lines are read under the rule of
`lethe.scoring.keyword`. A state records the progress of every keyword and the open bytes of an
unfinished character, so every tokenisation of a keyword is recognised, and so are keywords that end
inside a token.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal, NamedTuple

import numpy as np

from lethe.errors import BadValue
from lethe.sampling.answer_tree.spelling import Spelling
from lethe.scoring.keyword import (
    BACKTICK,
    UNDERSCORE,
    Match,
    breaks,
    breaks_at_hyphen,
    joins,
    keyword_form,
    skips,
)
from lethe.scoring.typography import DASH, EMPHASIS, HYPHEN, SINGLE, SOFT, folded, plain

LEAK, DIRTY = 0, 1  # the two absorbing states
MOST_STATES = 20_000

# Symbols of characters that occur in no keyword. The symbols of keyword characters follow, each in two forms: as the
# start of a character of the text (the preceding text is then settled), or as a further part of its normal form.
MARK = 0
JOINING, JOINING_MORE, APART, APART_MORE, BLANK, BLANK_MORE = range(1, 7)
SOFT_HYPHEN = 7  # left out but before white space
FIRST_OWN = 8

# No code point normalises to more than five ASCII characters; a test checks all code points.
MOST_ASCII = 5
MARK_CODE = -1  # represents a character that does not start a segment


@cache
def composing() -> frozenset[str]:
    """The characters that compose with the preceding one: second in a canonical pair, or a Hangul vowel or final."""
    jamo = [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]
    seconds = set(map(chr, jamo))
    for code in range(0x30000):  # no later code point has a canonical pair
        pair = unicodedata.decomposition(chr(code)).split()
        if len(pair) == 2 and not pair[0].startswith("<"):
            seconds.add(chr(int(pair[1], 16)))
    return frozenset(seconds)


@cache
def starts_segment(character: str) -> bool:
    """Whether NFKC neither changes the text before this character nor merges this character with it."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) == 0 and first not in composing()


@cache
def normal_form(character: str) -> str:
    """The normal form of a character that starts a segment: any number of characters, blanks for white space."""
    form = ""
    for part in folded(character):
        form += " " if part.isspace() else part
    return form


@cache
def _letters(character: str) -> tuple[tuple[int, bool, bool], ...]:
    """The rows of `letters_of` for one character: none for a character that is left out."""
    if character == SOFT:
        return ((ord(SOFT), False, False),)
    sign = plain(character)
    if not sign:
        return ()
    if not starts_segment(sign):
        return ((MARK_CODE, True, False),)
    form = normal_form(character)
    return tuple((ord(part), place == 0, joins(part)) for place, part in enumerate(form))


def letters_of(text: str) -> np.ndarray:
    """(n, 3) the normalised characters: code point, whether the first of its original character, whether it joins a word."""
    rows: list[tuple[int, bool, bool]] = []
    for character in text:
        rows += _letters(character)
    return np.array(rows, np.int64).reshape(-1, 3)


class Begun(NamedTuple):
    """A keyword of which some characters are read.

    Attributes
    ----------
    keyword
        Its number among the keywords.
    length
        The number of its characters that are read.
    after
        What was read since of a broken line: its hyphen, or the break too. "dash": the last character was a dash, other
        than a hyphen, that is no end of a line.
    """

    keyword: int
    length: int
    after: Literal["", "hyphen", "break", "dash"] = ""


@dataclass(frozen=True)
class Configuration:
    """The progress of every keyword; a state of the automaton.

    Attributes
    ----------
    open
        The keywords that have begun; one may have begun at several places.
    joined
        Whether the last character, underscores aside, joins a word.
    blank
        Whether the last character was a blank, or nothing was read.
    empty
        Whether only blanks were read.
    complete
        Whether a keyword is complete, except for a mark that may follow.
    ending
        Whether a keyword is complete unless the word continues.
    """

    open: frozenset[Begun] = frozenset()
    joined: bool = False
    blank: bool = True
    empty: bool = True
    complete: bool = False
    ending: bool = False


@dataclass(frozen=True)
class Matcher:
    """The automaton of some keywords, as tables over its S states and C symbols.

    Attributes
    ----------
    keywords
        The normalised keywords.
    alphabet
        The characters that have symbols of their own, sorted; without the blank.
    steps
        (S, C) the state after each symbol. The states `LEAK` and `DIRTY` are never left.
    start
        The state in which nothing is read.
    leaks_at_end
        (S,) whether the text leaks if it ends here.
    pending
        (S,) whether a keyword is complete, and the next character settles it.
    empty
        (S,) whether no visible character was read.
    missing
        (S,) the fewest characters that must follow before a leak; 0 if unknown.
    matched
        (S,) the largest share of a keyword that is read, in [0, 1].
    """

    keywords: tuple[str, ...]
    alphabet: str
    steps: np.ndarray
    start: int
    leaks_at_end: np.ndarray
    pending: np.ndarray
    empty: np.ndarray
    missing: np.ndarray
    matched: np.ndarray


def spellable(keyword: str) -> bool:
    """Whether a normalised keyword can be read character by character: every character starts a segment."""
    return all(starts_segment(character) for character in keyword)


def build_matcher(keywords: tuple[str, ...], match: Match) -> Matcher:
    """The automaton of normalised, spellable keywords, none of them blank.

    Raises
    ------
    BadValue
        If a keyword is blank, not normalised or not spellable, or the automaton exceeds `MOST_STATES`.
    """
    readable = [keyword for keyword in keywords if keyword and spellable(keyword)]
    if not keywords or [keyword_form(keyword) for keyword in readable] != list(keywords):
        raise BadValue(
            "keywords",
            keywords,
            "normalised texts that are not blank and contain no combining mark",
        )
    characters = {*"".join(keywords), *EMPHASIS, HYPHEN, DASH}
    alphabet = "".join(sorted(characters - {" "}))
    reader = _Reader(keywords, match)
    inputs = _inputs(alphabet)

    # Every state that can be reached, behind the two that are never left.
    number_of_state = {Configuration(): 2}
    states = [Configuration()]
    steps = [[LEAK] * (len(inputs) + 1), [DIRTY] * (len(inputs) + 1)]
    for state in states:  # which grow meanwhile
        row = [DIRTY]
        for read in inputs:
            following = reader.read(state, read)
            if following is None:
                row.append(LEAK)
                continue
            if following not in number_of_state:
                number_of_state[following] = len(states) + 2
                states.append(following)
            row.append(number_of_state[following])
        steps.append(row)
        if len(states) > MOST_STATES:
            raise BadValue(
                "keywords",
                keywords,
                f"fewer or shorter ones: the automaton exceeds {MOST_STATES} states",
            )

    pending = np.array([False, False, *(state.complete or state.ending for state in states)])
    missing = np.zeros(len(pending), np.int64)
    # No count is given where a mark may compose with the text read so far, as in non-ASCII keywords.
    if all(map(str.isascii, keywords)):
        missing[2:] = [reader.missing(state) for state in states]
    return Matcher(
        keywords=keywords,
        alphabet=alphabet,
        steps=np.array(steps, dtype=np.int32),
        start=2,
        leaks_at_end=pending | (np.arange(len(pending)) == LEAK),
        pending=pending,
        empty=np.array([False, False, *(state.empty for state in states)]),
        missing=missing,
        matched=np.array([1.0, 0.0, *map(reader.matched, states)]),
    )


@dataclass(frozen=True)
class _Input:
    """What a symbol stands for: a ``character`` of the alphabet, or any other one. ``starts``: a character of the text."""

    character: str | None
    joining: bool
    starts: bool


def _inputs(alphabet: str) -> list[_Input]:
    """What each symbol from `JOINING` on stands for."""
    characters: list[tuple[str | None, bool]] = [(None, True), (None, False)]
    characters += [(character, joins(character)) for character in f" {alphabet}"]
    inputs = []
    for character, joining in characters:
        inputs.append(_Input(character, joining, starts=True))
        inputs.append(_Input(character, joining, starts=False))
    inputs.insert(SOFT_HYPHEN - JOINING, _Input(SOFT, joining=False, starts=False))
    return inputs


class _Reader:
    """One step of the automaton: the rule of the keyword scorer, written out."""

    def __init__(self, keywords: tuple[str, ...], match: Match):
        self.keywords = keywords
        self.whole = match == "word"

    def read(self, at: Configuration, read: _Input) -> Configuration | None:
        """The configuration after a character; None: the text has leaked."""
        character = read.character
        if character == SOFT:
            return replace(at, open=at.open | frozenset(self._at_soft_hyphen(at)))
        joining = read.joining
        underscore = character == UNDERSCORE  # the character behind it decides whether a word ends
        ended = at.ending and not joining
        if read.starts and (at.complete or ended):
            return None
        if character == " " and at.blank:
            return at
        complete = at.complete or ended
        ending = at.ending and underscore

        # Each keyword that has begun goes on, and each may begin here.
        begun: set[Begun] = set()
        unread = [Begun(number, 0) for number in range(len(self.keywords))]
        for part in [*at.open, *unread]:
            keyword = self.keywords[part.keyword]
            length = part.length
            if length == 0 and self.whole and at.joined and joins(keyword[0]):
                continue  # a keyword within a word
            if length > 0:
                begun |= self._passed(part, character)
            if part.after == "hyphen" or not _reads(keyword[length], character):
                continue
            if length + 1 < len(keyword):
                at_dash = character == DASH and breaks_at_hyphen(keyword, length + 1)
                begun.add(Begun(part.keyword, length + 1, "dash" if at_dash else ""))
            elif self.whole and joining:
                ending = True
            else:
                complete = True

        blank = character == " "
        if underscore:
            joining = at.joined
        return Configuration(
            open=frozenset(begun),
            joined=joining,
            blank=blank,
            empty=at.empty and blank,
            complete=complete,
            ending=ending,
        )

    def _at_soft_hyphen(self, at: Configuration) -> Iterator[Begun]:
        """The further progress of each keyword that a soft hyphen may break."""
        for part in at.open:
            if not part.after and breaks(self.keywords[part.keyword], part.length):
                yield part._replace(after="hyphen")

    def _passed(self, part: Begun, character: str | None) -> set[Begun]:
        """The progress behind a character that may stand before the next one of the keyword; empty where it may not."""
        keyword = self.keywords[part.keyword]
        length = part.length
        if character is not None and character in EMPHASIS and skips(keyword, length):
            return {part}
        if character == HYPHEN and not part.after and breaks(keyword, length):
            return {part._replace(after="hyphen")}
        if character != " ":
            return set()
        if keyword[length - 1] == " ":  # a further blank, with marks of emphasis in between
            return {part}
        if part.after == "dash":
            return set()
        if part.after or breaks_at_hyphen(keyword, length):
            return {part._replace(after="break")}
        return set()

    def missing(self, at: Configuration) -> int:
        """The fewest characters that must follow before a keyword is complete."""
        if at.complete or at.ending:
            return 0
        begun = [len(self.keywords[part.keyword]) - part.length for part in at.open]
        return min([*begun, *map(len, self.keywords)])

    def matched(self, at: Configuration) -> float:
        """The largest share of a keyword that is read."""
        if at.complete or at.ending:
            return 1.0
        shares = [part.length / len(self.keywords[part.keyword]) for part in at.open]
        return max(shares, default=0.0)


def _reads(wanted: str, character: str | None) -> bool:
    """Whether a character of a text is the ``wanted`` one of a keyword."""
    return character == wanted or (wanted, character) in ((SINGLE, BACKTICK), (HYPHEN, DASH))


# The verdict on an answer that ends in a state; unknown: ask the scorer.
CLEAN_END = 0
LEAK_END = 1
UNKNOWN_END = 2


class Automaton:
    """Reads answers token by token.

    States are whole numbers, and `row` says the state after each token. The other methods take an array of states, and
    return an array of its shape. This class itself reads nothing, so that the scorer judges every finished answer.

    Attributes
    ----------
    start
        The state in which nothing is read.
    """

    start = 0

    def __init__(self, vocabulary: int):
        self._row = np.zeros(vocabulary, np.int32)

    def row(self, state: int) -> np.ndarray:
        """(V,) the state after each token."""
        return self._row

    def leaks(self, states: np.ndarray) -> np.ndarray:
        """Whether the answer leaks, whatever follows."""
        return np.zeros(states.shape, bool)

    def ends(self, states: np.ndarray) -> np.ndarray:
        """One of the three ends, if the answer ends here."""
        return np.full(states.shape, UNKNOWN_END)

    def blank(self, states: np.ndarray) -> np.ndarray:
        """Whether an answer that ends here has no visible character."""
        return np.zeros(states.shape, bool)

    def pending(self, states: np.ndarray) -> np.ndarray:
        """Whether a keyword is complete, and the next character decides."""
        return np.zeros(states.shape, bool)

    def needs(self, states: np.ndarray) -> np.ndarray:
        """The number of tokens before which no answer leaks."""
        return np.zeros(states.shape, np.int64)

    def matched(self, states: np.ndarray) -> np.ndarray:
        """The share of a keyword read so far."""
        return np.zeros(states.shape)


class Columns:
    """The letters of many texts, to read all at once.

    Attributes
    ----------
    order
        (texts,) the places of the texts, the longest first.
    columns
        The l-th entry, (texts with so many letters, 3), holds the l-th letters of the texts that have one, in that order.
    """

    def __init__(self, texts: Sequence[np.ndarray]):
        lengths = np.array([len(text) for text in texts], np.int64)
        self.order = np.argsort(-lengths, kind="stable")
        longest_first = [texts[number] for number in self.order]
        self.columns = []
        for place in range(lengths.max(initial=0)):
            count = np.count_nonzero(lengths > place)
            self.columns.append(np.array([text[place] for text in longest_first[:count]]))


class TokenLetters:
    """The letters of every token of a vocabulary, which all questions share.

    Attributes
    ----------
    letters
        The letters of each token, as ``letters_of`` reads a text.
    opens
        The distinct bytes that tokens leave open, of which the first entry is empty.
    open_bytes
        (V,) the place in ``opens`` of the bytes that each token leaves open.
    continued
        From open bytes to the same three of the tokens that may continue them.
    allowed
        (V,) the number of ASCII characters that open bytes may add to the token's own.
    """

    def __init__(self, spelling: Spelling, letters_of: Callable[[str], np.ndarray] = letters_of):
        self.spelling = spelling
        self.size = len(spelling.pieces)
        self.letters_of = letters_of
        self.letters, self.opens, self.open_bytes = self._read(b"", range(self.size))
        # The same for all questions.
        self.continued = cache(partial(self._read, tokens=spelling.continuing.tolist()))
        self.allowed = MOST_ASCII * (self.open_bytes > 0)
        self.allowed[spelling.continuing] += MOST_ASCII

    def _read(
        self, remainder: bytes, tokens: Sequence[int]
    ) -> tuple[Columns, list[bytes], np.ndarray]:
        """Of the texts that tokens settle after open bytes: letters, the distinct bytes left open, and theirs by place."""
        letters: list[np.ndarray] = []
        place_of = {b"": 0}
        places = []
        for token in tokens:
            text, further = self.spelling.advance(remainder, token)
            letters.append(self.letters_of(text))
            places.append(place_of.setdefault(further, len(place_of)))
        return Columns(letters), list(place_of), np.array(places, np.int64)


class TokenAutomaton(Automaton):
    """An automaton of characters, composed with the spelling of tokens.

    The states of the automaton of characters are 0 to ``size`` - 1. The state ``open * size + s`` is its state s behind
    the open bytes ``opens[open]`` of an unfinished character. A member says how it reads symbols.
    """

    most_rows: int | None = None  # next states of a whole vocabulary that are kept

    def __init__(self, tokens: TokenLetters, size: int, start: int):
        self.tokens = tokens
        self.spelling = tokens.spelling
        self.size = size
        self.start = start
        self.symbols = [self.symbols_of(column) for column in tokens.letters.columns]
        self._open_symbols: dict[bytes, list[np.ndarray]] = {}  # of the characters after open bytes
        self.opens = list(tokens.opens)
        self.place_of = {remainder: place for place, remainder in enumerate(self.opens)}
        self._rows: dict[int, np.ndarray] = {}

    def symbols_of(self, letters: np.ndarray) -> np.ndarray:
        """The symbols under which the automaton reads letters."""
        raise NotImplementedError

    def step(self, states: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """The states after one symbol each."""
        raise NotImplementedError

    def after(self, states: np.ndarray, text: str) -> np.ndarray:
        """The states after a text."""
        for symbol in self.symbols_of(self.tokens.letters_of(text)):
            states = self.step(states, symbol)
        return states

    def closed(self, place: int, at: int) -> int:
        """The state of characters once open bytes are read as broken ones, from the state ``at``."""
        text = self.spelling.flush(self.opens[place])
        return int(self.after(np.array([at]), text)[0])

    def row(self, state: int) -> np.ndarray:
        if state not in self._rows:
            if len(self._rows) == self.most_rows:
                del self._rows[next(iter(self._rows))]
            place, at = divmod(state, self.size)
            if place:
                self._rows[state] = self._behind_open(state, place, at)
            else:  # open bytes have no effect in the absorbing states
                after = self._read(self.tokens.letters, self.symbols, at)
                self._rows[state] = np.where(
                    after <= DIRTY, after, after + self.size * self.tokens.open_bytes
                )
        return self._rows[state]

    def _behind_open(self, state: int, place: int, at: int) -> np.ndarray:
        """(V,) the states after each token behind open bytes, which most tokens close as broken ones."""
        remainder = self.opens[place]
        row = self.row(self.closed(place, at)).copy()
        row[self.spelling.skipped] = state

        # The others continue the open character.
        letters, opens, further = self.tokens.continued(remainder)
        if remainder not in self._open_symbols:
            self._open_symbols[remainder] = [self.symbols_of(column) for column in letters.columns]
        after = self._read(letters, self._open_symbols[remainder], at)
        for left_open in opens:
            if left_open not in self.place_of:
                self.place_of[left_open] = len(self.opens)
                self.opens.append(left_open)
        places = np.array([self.place_of[left_open] for left_open in opens], np.int64)[further]
        row[self.spelling.continuing] = np.where(after <= DIRTY, after, places * self.size + after)
        return row

    def _read(self, letters: Columns, symbols: Sequence[np.ndarray], at: int) -> np.ndarray:
        """(texts,) the state after each text, from the state ``at``."""
        states = np.full(len(letters.order), at, np.int64)
        for column in symbols:
            states[: len(column)] = self.step(states[: len(column)], column)
        by_text = np.empty_like(states)
        by_text[letters.order] = states
        return by_text

    def leaks(self, states: np.ndarray) -> np.ndarray:
        return states == LEAK


class KeywordAutomaton(TokenAutomaton):
    """Reads until a keyword is complete, as `lethe.scoring.keyword` finds it in the whole text."""

    def __init__(self, matcher: Matcher, tokens: TokenLetters):
        self.matcher = matcher
        self._after_text: dict[str, np.ndarray] = {}  # by what broken bytes are read as
        super().__init__(tokens, len(matcher.steps), matcher.start)
        self._stride = max(1, int((self._runs() + tokens.allowed).max(initial=0)))

    def symbols_of(self, letters: np.ndarray) -> np.ndarray:
        """(n,) the symbols of (n, 3) letters, as `letters_of` gives them."""
        codes, starts, joining = letters.T
        alphabet = np.array(list(map(ord, self.matcher.alphabet)), dtype=codes.dtype)
        place = np.searchsorted(alphabet, codes)
        symbols = np.where(joining, JOINING, APART)
        symbols[codes == ord(" ")] = BLANK
        in_alphabet = alphabet[np.minimum(place, len(alphabet) - 1)] == codes
        symbols[in_alphabet] = FIRST_OWN + 2 * place[in_alphabet]
        symbols += 1 - starts
        symbols[codes == MARK_CODE] = MARK
        symbols[codes == ord(SOFT)] = SOFT_HYPHEN
        return symbols

    def step(self, states: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        return self.matcher.steps[states, symbols]

    def _runs(self) -> np.ndarray:
        """(V,) the longest run of characters in each token that a keyword can take up or skip, without those it skips."""
        run = np.zeros(self.tokens.size, np.int64)
        longest = run.copy()
        before = np.zeros(len(run), bool)  # the last letter was a blank: a further one adds nothing
        taken_up = self._taken_up()
        for symbols in self.symbols:
            count = len(symbols)
            blank = (symbols == BLANK) | (symbols == BLANK_MORE)
            repeated_blank = blank & before[:count]
            gain = np.where(symbols == MARK, MOST_ASCII, taken_up[symbols] & ~repeated_blank)
            goes_on = blank | (symbols >= SOFT_HYPHEN) | (symbols == MARK)
            run[:count] = np.where(goes_on, run[:count] + gain, 0)
            before[:count] = blank
            longest = np.maximum(longest, run)
        by_token = np.empty_like(longest)
        by_token[self.tokens.letters.order] = longest
        return by_token

    def _taken_up(self) -> np.ndarray:
        """(C,) whether a symbol stands for a character of a keyword, not only for a mark that keywords skip."""
        wanted = set("".join(self.matcher.keywords))
        if SINGLE in wanted:
            wanted.add(BACKTICK)
        if HYPHEN in wanted:
            wanted.add(DASH)
        taken_up = np.zeros(self.matcher.steps.shape[1], bool)
        taken_up[[BLANK, BLANK_MORE]] = True
        for place, character in enumerate(self.matcher.alphabet):
            first = FIRST_OWN + 2 * place
            taken_up[first : first + 2] = character in wanted
        return taken_up

    def closed(self, place: int, at: int) -> int:
        return int(self._broken(place)[at])

    def _broken(self, place: int) -> np.ndarray:
        """(size,) the state of characters from each one, once open bytes are read as broken ones."""
        # Hundreds of open bytes have one text, and a table of a text costs less than a search for each state.
        text = self.spelling.flush(self.opens[place])
        if text not in self._after_text:
            self._after_text[text] = self.after(np.arange(self.size), text)
        return self._after_text[text]

    def _ended(self, states: np.ndarray) -> np.ndarray:
        """The matcher's states if the answer ends here, after the open bytes are read as broken bytes."""
        places, at = np.divmod(states, self.size)
        used, which = np.unique(places, return_inverse=True)
        table = np.stack([self._broken(place) for place in used.tolist()])
        return table[which.reshape(states.shape), at]

    def ends(self, states: np.ndarray) -> np.ndarray:
        ended = self._ended(states)
        known = np.where(self.matcher.leaks_at_end[ended], LEAK_END, CLEAN_END)
        return np.where(ended == DIRTY, UNKNOWN_END, known)

    def blank(self, states: np.ndarray) -> np.ndarray:
        return self.matcher.empty[self._ended(states)]

    def pending(self, states: np.ndarray) -> np.ndarray:
        return self.matcher.pending[states % self.size]

    def needs(self, states: np.ndarray) -> np.ndarray:
        """The number of tokens before which no answer leaks.

        A token adds at most a run of the keywords' characters, and the characters of open bytes. A state with open bytes
        gives 0, which promises nothing.
        """
        missing = self.matcher.missing[states % self.size]
        return np.where(states < self.size, -(-missing // self._stride), 0)

    def matched(self, states: np.ndarray) -> np.ndarray:
        return self.matcher.matched[states % self.size]
