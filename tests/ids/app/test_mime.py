"""Mails: parts, encodings, files, URLs, what is odd about them, and that no bytes stop the decoder."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ids.app.mime import decoder
from flowshunt_ids.app.mime.decoder import Mail, MimeSettings
from flowshunt_ids.app.mime.encodings import Base64, quoted_printable
from flowshunt_ids.app.mime.parameters import parameter


class Files:
    """Keeps the files of a mail."""

    def __init__(self):
        self.files = []

    def begin(self, name):
        self.files.append([name, b"", False])

    def add(self, data):
        self.files[-1][1] += data

    def end(self):
        if self.files:
            self.files[-1][2] = True


def decode(text, **wanted):
    files = Files()
    mail = Mail(MimeSettings(**wanted), files)
    for line in text.split(b"\r\n"):
        mail.line(line, b"\r\n")
    mail.complete()
    return mail, files.files


def multipart(*parts, kind=b"mixed"):
    head = b"Content-Type: multipart/" + kind + b'; boundary="bb"\r\n\r\n'
    return head + b"".join(b"--bb\r\n" + part + b"\r\n" for part in parts) + b"--bb--"


@given(st.binary(max_size=200), st.integers(1, 80))
def test_base64_is_decoded_however_it_is_cut_into_lines(data, width):
    text = base64.b64encode(data)
    mine = Base64()
    made = b"".join(mine.line(text[at : at + width]) for at in range(0, len(text), width))
    assert made + mine.end() == data


@pytest.mark.parametrize(
    ("lines", "decoded"),
    [
        ([b"Q U!J\xffD"], b"ABC"),
        ([b"QUI=", b"QUJD"], b"ABABC"),
        ([b"QQ==QUJD"], b"AABC"),
        ([b"QUI"], b"AB"),
        ([b"===="], b""),
    ],
    ids=["foreign", "padding-between-lines", "padding-within", "not-padded", "padding-alone"],
)
def test_base64_that_is_malformed(lines, decoded):
    mine = Base64()
    assert b"".join(mine.line(line) for line in lines) + mine.end() == decoded


@pytest.mark.parametrize(
    ("line", "decoded", "sound"),
    [
        (b"caf=C3=A9", b"caf\xc3\xa9\r\n", True),
        (b"soft=", b"soft", True),
        (b"=3D", b"=\r\n", True),
        (b"=ZZ", b"ZZ\r\n", False),
        (b"", b"\r\n", True),
    ],
)
def test_quoted_printable(line, decoded, sound):
    assert quoted_printable(line, b"\r\n") == (decoded, sound)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"attachment; filename=plain.txt", b"plain.txt"),
        (b'attachment; filename="with ; in it.txt"; size=3', b"with ; in it.txt"),
        (b'attachment; dummy="filename=wrong"; filename=real', b"real"),
        (b"attachment; notafilename=wrong; filename=good;", b"good"),
        (b"attachment; filename*0=long; filename*1=name.txt; filename*3=no", b"longname.txt"),
        (b"attachment; filename=so-far; badending", b"so-far"),
        (b"attachment", None),
    ],
)
def test_a_parameter_is_found(value, found):
    assert parameter(value, b"filename") == found


def test_an_attachment_is_decoded_and_named():
    data = bytes(range(256)) * 20
    part = (
        b'Content-Type: application/octet-stream; name="other.bin"\r\n'
        b'Content-Disposition: attachment;\r\n filename="a file.exe"\r\n'
        b"Content-Transfer-Encoding: BASE64\r\n\r\n" + base64.encodebytes(data).replace(b"\n", b"\r\n")
    )
    mail, files = decode(multipart(part))
    assert files == [[b"a file.exe", data, True]]
    assert mail.status == "PARSE_DONE" and not mail.anomalies


def test_the_line_end_before_a_boundary_is_no_part_of_a_file():
    _mail, files = decode(multipart(b"Content-Type: text/plain; name=x\r\n\r\none\r\ntwo"))
    assert files == [[b"x", b"one\r\ntwo", True]]


def test_parts_within_parts_and_mails_within_mails_are_found():
    inner = (
        b'Content-Type: multipart/mixed; boundary="in"\r\n\r\n--in\r\nContent-Type: a/b; name=deep\r\n\r\nx\r\n--in--'
    )
    enclosed = b"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\nContent-Type: a/b; name=mail\r\n\r\ny"
    mail, files = decode(multipart(inner, enclosed))
    assert [each[:2] for each in files] == [[b"deep", b"x"], [b"mail", b"y"]]
    assert mail.status == "PARSE_DONE"


def test_urls_of_text_are_listed_once_and_described():
    text = b"see HTTP://Evil.example/A.exe?x and http://10.1.2.3/ http://evil.example/a.exe?x ftp://not.this"
    mail, _files = decode(b"Content-Type: text/plain\r\n\r\n" + text)
    found = {url.text: (url.executable, url.version) for url in mail.root.urls.values()}
    assert found == {b"evil.example/a.exe?x": (True, 0), b"10.1.2.3/": (False, 4)}


def test_the_digest_of_a_body_is_made_where_asked_for():
    mail, _files = decode(b"Subject: x\r\n\r\nhello\r\n", body_md5=True)
    assert mail.md5 is not None
    assert decode(b"Subject: x\r\n\r\nhello\r\n")[0].md5 is None


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (b"Subject: " + b"x" * 2001 + b"\r\n\r\n", "mime_long_header_value"),
        (b"x" * 76 + b": y\r\n\r\n", "mime_long_header_name"),
        (b"Subject: x\r\n\r\n" + b"y" * 999, "mime_long_line"),
        (b"Content-Type: multipart/mixed; boundary=" + b"b" * 255 + b"\r\n\r\n", "mime_long_boundary"),
        (b"Content-Disposition: attachment; filename=" + b"b" * 256 + b"\r\n\r\n", "mime_long_filename"),
        (b"Content-Transfer-Encoding: base64\r\n\r\n" + b"QUJD" * 20, "mime_long_enc_line"),
        (b"Content-Transfer-Encoding: quoted-printable\r\n\r\n=ZZ", "mime_invalid_qp"),
        (b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nA: b\r\n\r\nno end", "mime_malformed_msg"),
    ],
)
def test_what_is_odd_is_named(text, event):
    assert event in decode(text)[0].anomalies


def test_depth_and_number_of_parts_are_bounded():
    deep = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (level, level) for level in range(500)
    )
    mail, _files = decode(deep)
    assert mail.status == "PARSE_ERROR" and mail._parts <= decoder.DEEPEST + 1
    mail, _files = decode(multipart(*[b"A: b\r\n\r\n"] * 5000))
    assert mail.status == "PARSE_ERROR" and mail._parts <= decoder.MOST_PARTS + 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    b"",
                    b"--bb",
                    b"--bb--",
                    b"--in",
                    b"--in--",
                    b'Content-Type: multipart/mixed; boundary="bb"',
                    b"Content-Type: multipart/mixed; boundary=in",
                    b"Content-Type: message/rfc822",
                    b"Content-Type: text/plain; name=f",
                    b"Content-Transfer-Encoding: base64",
                    b"Content-Transfer-Encoding: quoted-printable",
                    b"QUJD=",
                    b"=4",
                    b" folded",
                ]
            ),
            st.binary(max_size=30),
        ),
        max_size=40,
    )
)
def test_no_lines_stop_it_and_every_file_ends(lines):
    files = Files()
    mail = Mail(MimeSettings(body_md5=True), files)
    for line in lines:
        mail.line(line, b"\r\n")
    whole = mail.complete()
    assert (mail.status == "PARSE_DONE") == whole
    if whole:
        assert all(ended for _name, _data, ended in files.files)
