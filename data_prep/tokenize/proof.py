"""Texts on which two ways of tokenizing must agree before the faster one is used."""

from __future__ import annotations

import random
from collections.abc import Iterator

# Every code point of these is tried; of the others (ideographs, syllables, private use) one in 97.
_TRIED = (
    (0x0, 0x3400),
    (0xA000, 0xAC00),
    (0xF900, 0x10400),
    (0x10800, 0x11200),
    (0x1D000, 0x1D800),
    (0x1F000, 0x1FB00),
)
_STEP = 97
_END = 0x110000
_SURROGATES = range(0xD800, 0xE000)
_RUN_CHARACTERS = 3000

_SNIPPETS = (
    "It's THEY'LL we'Ve o\u2019clock 'S 'T x'sy I'd I'm you're 'll' don''t 's 't",
    "def f(x):\n\treturn x  # two\n\n\n    if not x :\r\n\r\n        pass\r\r\n \n  \n\t \tend   ",
    "1 12 123 1234 12345678 1,234.56 3.14e-10 0xDEADBEEF 2024-01-31T12:00:00Z v1.2.3 a1b22c333 \u00b2\u00bd\u2167",
    "caf\u00e9 cafe\u0301 \u0301x a\u0301\u0302b \u212b \u1e9b\u0323 \ufb01 na\u00efve \u00c5ngstr\u00f6m A\u030a",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u0645\u0631\u062d\u0628\u0627",
    "\u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u041c\u0418\u0420",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\ufe0f \u2764\ufe0f",
    "\U0001d54f \U00020000 x",
    "<|endoftext|><|begin_of_text|><|eot_id|></s><s>[INST]<unk><pad><mask>[CLS]<|im_start|> <|endoftext|> x</s>",
    "https://a.b/c?d=e&f=%20#g a@b.c $$x^2$$ \\frac{a}{b} {{}} ;;; !!! ... ---- ==== \\n\\t \"q\" 'q' `q`",
    "\x00\x01\x7f\x80\x85\xa0\u1680\u180e\u2000\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff\ufffd\ufffe\uffff",
    "  lead", "trail  ", " ", "\n", "", "\t\t", "a", " a", "a ", "  a  b  ", " \n \n a\n", "x\r\ny\r\n",
)  # fmt: skip
_LETTERS = (
    "aAbz\u00e9 sS'tT \n\t\r.,;-_/=1234567890 \u4e2d\u6587\u3042\u0410\u0431\u0301\u200d\U0001f600\u00a0\u3000<|>"
)


def torture_texts() -> list[str]:
    """Texts full of what tokenizers differ in, and most code points; the same at every call."""
    return [*tricky_texts(), *_code_points()]


def tricky_texts() -> list[str]:
    """The same without the code points, some hundred texts."""
    chance = random.Random(0)
    noise = ["".join(chance.choices(_LETTERS, k=chance.randint(1, 200))) for _ in range(400)]
    words = ["".join(chance.choices("etaoinshrdlu ETA,.'\n 12", k=2000)) for _ in range(10)]
    runs = [
        letter * _RUN_CHARACTERS + end for letter in "aA= \n1-\t\u4e2d\u0301\U0001f600" for end in ("", "b", " b", "\n")
    ]
    runs.append("".join(chance.choices("0123456789abcdef", k=_RUN_CHARACTERS)))
    runs.append("".join(chance.choices("abcdefghijklmnopqrstuvwxyzABCXYZ", k=_RUN_CHARACTERS)))
    return [*_SNIPPETS, *noise, *words, *runs]


def _code_points() -> Iterator[str]:
    """Each code point between letters, digits, spaces and quotes."""
    for code in range(_END):
        if code in _SURROGATES:
            continue
        if code % _STEP == 0 or any(begin <= code < end for begin, end in _TRIED):
            letter = chr(code)
            yield f"a{letter}b {letter}1'{letter}\n{letter} "
