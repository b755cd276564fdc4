import pytest

from qtunnel.errors import ConfigError
from qtunnel.masque.uri_template import default_template, parse_template


@pytest.mark.parametrize(
    ("expression", "path"),
    [
        ("{target}", "192.0.2.0%2F24"),
        ("{target,ipproto}", "192.0.2.0%2F24,17"),
        ("{?target}", "?target=192.0.2.0%2F24"),
        ("{?ipproto,target}", "?ipproto=17&target=192.0.2.0%2F24"),
        ("{?other,target}", "?target=192.0.2.0%2F24"),
        ("{?other}", ""),
        ("{other}x", "x"),
        ("?a=1{&target}", "?a=1&target=192.0.2.0%2F24"),
        ("?a=1{&other}", "?a=1"),
        ("%41{ipproto}%2f", "%4117%2f"),
        ("~!$&'()*+,;=:@-._", "~!$&'()*+,;=:@-._"),
        ("{va.r%41_1}", ""),
    ],
)
def test_expansion_follows_rfc_6570(expression: str, path: str) -> None:
    template = parse_template(f"https://proxy.example/{expression}")
    assert template.expand("192.0.2.0/24", "17") == ("proxy.example", f"/{path}")


def test_everything_but_unreserved_characters_is_encoded_once() -> None:
    template = parse_template("https://proxy.example/{target}")
    assert template.expand("a:b/c%2F*", "*")[1] == "/a%3Ab%2Fc%252F%2A"
    assert template.expand("a-b.c_d~e", "*")[1] == "/a-b.c_d~e"


@pytest.mark.parametrize("char", ['"', "<", ">", "\\", "^", "`", "|", "}", "%", "%4", "%zz"])
def test_characters_that_no_uri_has_are_refused(char: str) -> None:
    with pytest.raises(ConfigError):
        parse_template(f"https://proxy.example/a{char}")


@pytest.mark.parametrize(
    "inside", ["", "?", "target,", ",target", "a..b", ".a", "a-b", "=a", "!a", "@a", "|a", "{a}", "a b"]
)
def test_what_is_no_variable_is_refused(inside: str) -> None:
    with pytest.raises(ConfigError):
        parse_template(f"https://proxy.example/{{{inside}}}")


@pytest.mark.parametrize("rest", ["{", "{target", "a{b{c}", "}{"])
def test_braces_come_in_pairs(rest: str) -> None:
    with pytest.raises(ConfigError):
        parse_template(f"https://proxy.example/{rest}")


@pytest.mark.parametrize(
    "authority",
    [
        "user@proxy.example",
        "proxy.example:",
        "proxy.example:0",
        "proxy.example:65536",
        "a:b",
        "[::1",
        "[1:2]",
        "a%41",
    ],
)
def test_what_is_no_host_and_port_is_refused(authority: str) -> None:
    with pytest.raises(ConfigError):
        parse_template(f"https://{authority}/p")


@pytest.mark.parametrize(
    "authority", ["proxy.example", "proxy.example:65535", "192.0.2.1:1", "[2001:db8::1]:4433", "[::1]", "[1::]"]
)
def test_hosts_and_ports_are_taken_as_they_are(authority: str) -> None:
    assert parse_template(f"HTTPS://{authority}/p").expand() == (authority, "/p")


def test_the_error_names_the_field() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_template("ftp://proxy.example/")
    assert caught.value.field == "uri_template"


@pytest.mark.parametrize(
    ("host", "port"),
    [("bad host", 443), ("a/b", 443), ("", 443), ("{target}", 443), ("a?b", 443), ("proxy.example", 0)],
)
def test_a_default_template_needs_a_proper_host_and_port(host: str, port: int) -> None:
    with pytest.raises(ConfigError):
        default_template(host, port)
