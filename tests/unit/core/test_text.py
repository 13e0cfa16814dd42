import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.text import ascii_only, cells, mask, plain, secret_name, shorten

# Format characters that are seen, such as the Arabic number sign.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}


# ---- plain --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.1 größer 損失 🚀", "loss 0.1 größer 損失 🚀"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred\x9bm", "red"),
        ("\x1b]0;owned title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\a\x1bcb\x1b(Bc", "abc"),
        ("\x1b]0;never ends", "\\x1b]0;never ends"),
        ("\x1b\x1b[0m[31m", "\\x1b[31m"),
        ("\x1b[\x1b[31m31m", "\\x1b[31m"),
        ("\x07\x08\x7f\x85", "\\x07\\x08\\x7f\\x85"),
        ("a\tb\r\nc", "a\\tb\\r\\nc"),
        ("\u202egnp.exe\u202c", "\\u202egnp.exe\\u202c"),
        ("a\u200bb\ufeffc\u2028d\xade\u3164", "a\\u200bb\\ufeffc\\u2028d\\xade\\u3164"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_plain(text, shown):
    assert plain(text) == shown


def test_plain_lines_of_a_log():
    log = "\x1b[32m10%\r20%\r\n\tdone\x07\n\u2028"
    assert plain(log, lines=True) == "10%\n20%\n\tdone\\x07\n\\u2028"


@pytest.mark.slow
def test_no_character_of_unicode_gets_through_that_controls_a_terminal():
    dangerous = {
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Zl", "Zp", "Cs"} and code not in SEEN
    }
    assert not dangerous & set(map(ord, plain("".join(map(chr, sorted(dangerous))))))
    kept = set(map(ord, plain("".join(map(chr, sorted(dangerous))), lines=True)))
    assert dangerous & kept == {0x09, 0x0A}


@pytest.mark.slow
@given(st.text(st.characters(max_codepoint=0x9F)) | st.text())
def test_plain_is_final_and_printable_text_stays(text):
    shown = plain(text)
    assert plain(shown) == shown
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    if text.isascii() and text.isprintable():
        assert shown == text


# ---- cells, shorten, ascii ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("loss", 4, "loss"),
        ("losses", 4, "los…"),
        ("損失関数", 8, "損失関数"),
        ("損失関数", 7, "損失関…"),
        ("損失関数", 6, "損失…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("loss", 1, "…"),
        ("loss", 0, ""),
        ("loss", -1, ""),
        ("", 0, ""),
    ],
)
def test_shorten(text, width, short):
    assert shorten(text, width) == short


def test_shorten_with_an_ending_of_ascii():
    assert shorten("a long name", 8, ending="...") == "a lon..."
    assert shorten("long", 2, ending="...") == ".."


@pytest.mark.slow
@given(st.text(), st.integers(0, 20))
def test_a_shortened_text_fits_and_begins_as_it_did(text, width):
    short = shorten(text, width)
    assert cells(short) <= width
    assert short == text or text.startswith(short.removesuffix("…"))


@pytest.mark.slow
@given(st.text())
def test_ascii_only(text):
    assert ascii_only(text).isascii()
    if text.isascii():
        assert ascii_only(text) == text


def test_signs_of_our_own_have_a_spelling():
    assert ascii_only("1.2 µs · 3\xd7 → ≤ 4 … ✓ ─│█░") == "1.2 us . 3x -> <= 4 ... ok -|#."
    assert ascii_only("損") == "\\u640d"


# ---- secrets ------------------------------------------------------------------------------------

SECRET = "Zq9sEcReTvAlUe7x"
HEX = "0123456789abcdef0123456789abcdef01234567"

LEAKS = [
    f"python train.py --token {SECRET}",
    f"python train.py --hf-token={SECRET} --epochs 3",
    f"python train.py --api-key '{SECRET} {SECRET}' x",
    f'python train.py --api_key="{SECRET}"',
    f"python train.py --password \\\n {SECRET}",
    f"password={SECRET}",
    f"password = '{SECRET}'",
    f"password: {SECRET}",
    f"PASSWORD={SECRET};python x.py",
    f"DB_PASSWD={SECRET} python x.py",
    f"export AWS_SECRET_ACCESS_KEY={SECRET} && python x.py",
    f"MYTOKEN={SECRET} GHTOKEN_VALUE={SECRET} true",
    f"WANDB_API_KEY={HEX} true",
    f"wandb login {HEX}",
    f"wandb login --relogin {HEX}",
    f"tool --key {HEX}",
    f"OPENAI_APIKEY={SECRET}",
    f"SSH_PRIVATE_KEY={SECRET}",
    f"GOOGLE_CREDENTIALS={SECRET}",
    f"python x.py trainer.apiKey={SECRET} dbPassword={SECRET}",
    f"python x.py --password={SECRET}\"{SECRET}\"'{SECRET}'\\ {SECRET}",
    f'{{"api_key": "{SECRET}", "secret" : "{SECRET}"}}',
    f"{{'token': '{SECRET}'}}",
    f"os.environ['HF_TOKEN']='{SECRET}'",
    f"git clone https://user:{SECRET}@host/repo",
    f"git clone https://:{SECRET}@host/repo",
    f"postgres://me:{SECRET}@x{SECRET}@host:5432/db",
    f"curl https://host/?api_key={SECRET}&x=1",
    f'curl -H "Authorization: Bearer {SECRET}" https://host',
    f"curl -H 'authorization:token {SECRET}' https://host",
    f"curl -H 'Authorization: {SECRET}' https://host",
    f"curl -H 'X-Api-Key: {SECRET}' https://host",
    f"proxy says bearer {SECRET}",
    f"echo ghp_{SECRET}",
    f"echo github_pat_11AA_{SECRET}{SECRET}",
    f"echo hf_{SECRET}",
    f"echo sk-proj-{SECRET} sk-{SECRET}",
    "echo xoxb-1234567890-ZqSECRETvAlUe",
    "echo AKIAZQSECRETVALUE7XX",
    f"echo glpat-{SECRET}",
    f"echo eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.{SECRET}",
    f"--token '{SECRET}",
]

KEPT = [
    "python train.py --tokenizer gpt2 --max-tokens 512 --max_new_tokens=64",
    "python train.py --tokens-per-batch 4096 --num_tokens=1e9 --pad-token '<pad>'",
    "python train.py --pad_token_id 0 --eos-token </s> --mask-token [MASK]",
    "python train.py --secret-ratio 0.5 --token-dropout 0.1 --token-merging-ratio 0.3",
    "TOKENIZERS_PARALLELISM=false PWD=/home/me python -m tokenize_data",
    "python train.py --token-file /run/hf --password-file=/run/secrets/db",
    "python train.py --token $HF_TOKEN --api-key=${API_KEY} --password \"$PASS\"",
    "python train.py --use-token=true token=None --token --epochs 3",
    "loss per token: 0.31 token=12 tokens: 512 tokens/s: 1000",
    "git clone git@host:repo ssh://git@host:22/repo https://host/a:b@c",
    "git checkout 0123456789abcdef0123456789abcdef01234567",
    "python sk-learn-random-forest.py task-0123456789abcdef hf_model",
    "WANDB_API_KEY= python train.py --keys 3 --compass north --passes 4",
    "python passwords.py secrets.txt",
]  # fmt: skip


@pytest.mark.parametrize("text", LEAKS)
def test_secrets_are_masked(text):
    masked = mask(text)
    assert "***" in masked
    for secret in (SECRET, HEX, "ZqSECRETvAlUe", "ZQSECRETVALUE7XX"):
        assert secret not in masked
    assert mask(masked) == masked


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_a_secret_is_kept(text):
    assert mask(text) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            "HF_TOKEN=abc python a.py --lr 1 --api-key=x --out b",
            "HF_TOKEN=*** python a.py --lr 1 --api-key=*** --out b",
        ),
        (
            'curl -H "X-Token: abc" -H "A: b" -H "Authorization: Bearer abc" -d x',
            'curl -H "X-Token: ***" -H "A: b" -H "Authorization: Bearer ***" -d x',
        ),
        ("[name=a password=b] x", "[name=a password=***] x"),
        ("password=12345 --token 77", "password=*** --token 77"),
        ("https://h/?token=a&x=1", "https://h/?token=***&x=1"),
        ('{"token": "a", "x": 1}', '{"token": ***, "x": 1}'),
        ("https://me:pw@host:80/x", "https://me:***@host:80/x"),
    ],
)
def test_no_more_than_the_secret_is_masked(text, masked):
    assert mask(text) == masked


SECRET_NAMES = [
    "HF_TOKEN", "token", "--token", "hub_token", "GITHUB_TOKEN", "TOKEN_GITHUB", "access_tokens",
    "MYSECRET", "client-secret", "db_password", "PGPASSWORD", "passwd", "passphrase", "api-key",
    "APIKEY", "x.apiKey", "AWS_SECRET_ACCESS_KEY", "private_key",
    "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY", "X-Api-Key", "auth_token",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_names_of_secrets(name):
    assert secret_name(name)


OTHER_NAMES = [
    "PATH", "PWD", "HOME", "tokenizer", "TOKENIZERS_PARALLELISM", "max_tokens", "MAX_TOKENS",
    "num-tokens", "tokens", "pad_token", "EOS_TOKEN", "token_type_ids", "token_file",
    "secret_ratio", "password_file", "SECRET_NAME", "key", "keys", "monkey", "KEYBOARD",
    "compass", "passes", "author", "OMP_NUM_THREADS", "detokenize",
]  # fmt: skip


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_other_things(name):
    assert not secret_name(name)


@pytest.mark.slow
@given(st.text(alphabet=" abk\"'=:-_./@\\$[]{}&;\n", max_size=60), st.sampled_from(LEAKS))
def test_nothing_before_a_secret_uncovers_it(noise, leak):
    masked = mask(f"{noise} {leak}")
    assert SECRET not in masked
    assert HEX not in masked


@pytest.mark.parametrize(
    "text",
    ["a" * 100_000, "-sk-" * 30_000, "-eyJaaaaaaaaa" * 9_000, "://a:" * 25_000, "token=]" * 20_000,
     "token=" + "]" * 100_000, "token='" * 20_000, "\x1b]" * 60_000, "\x1b[1" * 40_000,
     "token" + " " * 100_000, "bearer " * 20_000, "a.b-c_" * 20_000],
)  # fmt: skip
@pytest.mark.timeout(60)  # a pattern that is quadratic needs minutes for these
def test_hostile_texts_do_not_hang(text):
    assert SECRET not in plain(mask(f"{text} password={SECRET}"))
