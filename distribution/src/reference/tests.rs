use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn name(registry: Option<&str>, repository: &str, selector: Selector) -> Reference {
    Reference::Registry(Name { registry: registry.map(Into::into), repository: repository.into(), selector })
}

fn package(name: &str, version: Option<&str>) -> PackageName {
    PackageName { name: name.into(), version: version.map(Into::into) }
}

fn layout(dir: &str, reference: Option<Selector>) -> Reference {
    Reference::OciLayout(LayoutRef { dir: dir.into(), reference })
}

fn digest() -> Selector {
    Selector::Digest(Digest::of(""))
}

#[test]
fn every_documented_form() {
    let version = |v: &str| Selector::Version(v.into());
    let tag = |t: &str| Selector::Tag(t.into());
    let url = "https://a.example/r/x.mcpb?v=1@2";
    let bundle = format!("mcpb:{url}@sha256:{HEX}");
    let download = Reference::Download(Download { url: url.into(), digest: Digest::of("") });
    let table = [
        ("acme/hello-world@1.2.3", name(None, "acme/hello-world", version("1.2.3"))),
        ("acme/tool@latest", name(None, "acme/tool", Selector::Latest)),
        ("acme/tool:latest", name(None, "acme/tool", Selector::Latest)),
        (&format!("acme/tool@sha256:{HEX}"), name(None, "acme/tool", digest())),
        ("acme/tool", name(None, "acme/tool", Selector::Latest)),
        ("acme/tool:v1", name(None, "acme/tool", tag("v1"))),
        ("acme/tool@commit-0a1b2c3-20250101", name(None, "acme/tool", version("commit-0a1b2c3-20250101"))),
        ("acme/tool@1.2.3-rc.1+b5", name(None, "acme/tool", version("1.2.3-rc.1+b5"))),
        ("acme/a/b__c/d---e", name(None, "acme/a/b__c/d---e", Selector::Latest)),
        ("ghcr.io/o/r/n:tag", name(Some("ghcr.io"), "o/r/n", tag("tag"))),
        ("GHCR.io/o/r", name(Some("ghcr.io"), "o/r", Selector::Latest)),
        ("localhost/tool", name(Some("localhost"), "tool", Selector::Latest)),
        ("localhost:5000/mcp/everything:1.0", name(Some("localhost:5000"), "mcp/everything", tag("1.0"))),
        (&format!("localhost:5000/x/y@sha256:{HEX}"), name(Some("localhost:5000"), "x/y", digest())),
        ("127.0.0.1:5000/x@1", name(Some("127.0.0.1:5000"), "x", version("1"))),
        ("[::1]:5000/x/y", name(Some("[::1]:5000"), "x/y", Selector::Latest)),
        ("[::1]/x", name(Some("[::1]"), "x", Selector::Latest)),
        ("npm:@scope/name@1.2", Reference::Npm(package("@scope/name", Some("1.2")))),
        ("npm:left-pad", Reference::Npm(package("left-pad", None))),
        ("npm:@modelcontextprotocol/server-everything", {
            Reference::Npm(package("@modelcontextprotocol/server-everything", None))
        }),
        ("npm:name@latest", Reference::Npm(package("name", Some("latest")))),
        ("pypi:name==1.2", Reference::Pypi(package("name", Some("1.2")))),
        ("pypi:mcp-server-time", Reference::Pypi(package("mcp-server-time", None))),
        ("pypi:zope.interface==1!2.0.post1", Reference::Pypi(package("zope.interface", Some("1!2.0.post1")))),
        ("mcp:io.github.acme/hello@1.0.0", Reference::Mcp(package("io.github.acme/hello", Some("1.0.0")))),
        ("mcp:com.acme/x", Reference::Mcp(package("com.acme/x", None))),
        ("./dir", Reference::Directory("./dir".into())),
        ("../dir with space/x", Reference::Directory("../dir with space/x".into())),
        ("/abs", Reference::Directory("/abs".into())),
        (".", Reference::Directory(".".into())),
        ("..", Reference::Directory("..".into())),
        ("./file.mcpb", Reference::Mcpb("./file.mcpb".into())),
        (&bundle, download.clone()),
        (bundle.trim_start_matches("mcpb:"), download),
        ("/x/file.mcpb", Reference::Mcpb("/x/file.mcpb".into())),
        ("oci-layout:dir", layout("dir", None)),
        ("oci-layout:/a/b:v1", layout("/a/b", Some(tag("v1")))),
        ("oci-layout:.:localhost:5000/x/y:1", layout(".", Some(tag("localhost:5000/x/y:1")))),
        (&format!("oci-layout:d@sha256:{HEX}"), layout("d", Some(digest()))),
    ];
    for (text, want) in table {
        let read: Reference = text.parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read, want, "{text}");
        assert_eq!(read.to_string().parse(), Ok(read), "{text}: its canonical text means the same");
    }
    let with_colon: Reference = format!("oci-layout:d:@sha256:{HEX}").parse().unwrap();
    assert_eq!(with_colon.to_string(), format!("oci-layout:d@sha256:{HEX}"));
}

#[test]
fn malformed_ones_point_at_the_wrong_part() {
    let (upper, short, long) = (HEX.to_uppercase(), &HEX[..63], "a".repeat(300));
    let table = [
        ("", "", "empty"),
        ("tool", "", "org/name"),
        ("tool:1.0", ":1.0", "org/name"),
        ("file.mcpb", "", "org/name"),
        (" acme/tool", " acme/tool", "does not belong"),
        ("acme/tool ", " ", "does not belong"),
        ("acme/to\nol", "\nol", "control character"),
        ("./di\0r", "\0r", "control character"),
        ("Acme/tool", "Acme/tool", "lower case"),
        ("acme/tOol@1", "Ool@1", "lower case"),
        ("acme/tööl", "ööl", "does not belong"),
        ("acme//tool", "/tool", "empty part"),
        ("acme/", "", "empty part"),
        ("ghcr.io/", "", "empty part"),
        ("acme/tool/", "", "empty part"),
        ("acme/../tool", "../tool", "stand alone"),
        ("acme/-tool", "-tool", "stand alone"),
        ("acme/tool_", "_", "stand alone"),
        ("acme/a..b", "..b", "stand alone"),
        ("acme/a___b", "___b", "stand alone"),
        ("acme/a.b-.c", "-.c", "stand alone"),
        ("acme/tool@", "@", "nothing follows"),
        ("acme/tool:", ":", "nothing follows"),
        ("acme/tool:.1", ".1", "must begin"),
        ("acme/tool@-rf", "-rf", "must begin"),
        ("acme/tool@1.2 3", " 3", "does not belong"),
        ("acme/tool:1+2", "+2", "does not belong"),
        ("acme/tool@1@2", "@2", "does not belong"),
        (&format!("acme/tool:1@sha256:{HEX}"), &format!(":1@sha256:{HEX}"), "colon in the middle"),
        (&format!("acme/tool:{}", &long[..129]), "a", "at most 128"),
        (&format!("acme/{long}"), &long[250..], "at most 255"),
        ("acme/tool@sha256:../../x", "../../x", "0-9"),
        (&format!("acme/tool@sha256:{upper}"), &upper[0..], "lower case"),
        (&format!("acme/tool@sha256:{short}"), "", "too short"),
        (&format!("acme/tool@sha256:{HEX}0"), "0", "too long"),
        (&format!("acme/tool@sha512:{HEX}"), "", "too short"),
        (&format!("acme/tool@sha384:{HEX}"), &format!("sha384:{HEX}"), "begin with sha256: or sha512:"),
        ("https://ghcr.io/a/b", "://ghcr.io/a/b", "url"),
        ("docker://a/b", "://a/b", "url"),
        ("localhost:0/a/b", "0/a/b", "port"),
        ("localhost:65536/a/b", "65536/a/b", "port"),
        ("localhost:/a/b", "/a/b", "port"),
        ("localhost:+1/a/b", "+1/a/b", "port"),
        ("gem:x/y", "x/y", "port"),
        ("a_b.example/x", "_b.example/x", "does not belong"),
        ("a..example/x", ".example/x", "name of a host"),
        ("-a.example/x", "-a.example/x", "name of a host"),
        ("[::g]:5000/x", "::g]:5000/x", "IPv6"),
        ("[::1]x/y", "/y", "port"),
        ("npm:", "", "missing"),
        ("npm:@scope", "", "followed by /"),
        ("npm:@/x", "/x", "missing"),
        ("npm:@s/", "", "missing"),
        ("npm:../x", "../x", "begins with"),
        ("npm:.hidden", ".hidden", "begins with"),
        ("npm:--registry=x", "--registry=x", "begins with"),
        ("npm:x@^1.2", "^1.2", "ranges"),
        ("npm:x@", "", "version is missing"),
        ("npm:x@-g", "-g", "begins with"),
        ("pypi:name@1.2", "@1.2", "follows =="),
        ("pypi:name==", "", "version is missing"),
        ("pypi:name>=1", ">=1", "does not belong"),
        ("pypi:-r", "-r", "begins with"),
        ("pypi:name-", "-", "ends with"),
        ("mcp:hello", "", "REVERSE.DNS"),
        ("mcp:/hello", "/hello", "reversed"),
        ("mcp:io.github.acme/", "", "missing"),
        ("mcp:io.github/a/b", "/b", "does not belong"),
        ("mcpb:https://a.example/x.mcpb", "", "named with its hash"),
        ("https://a.example/x.mcpb", "", "named with its hash"),
        (&format!("mcpb:ftp://a.example/x@sha256:{HEX}"), "ftp:", "no url"),
        (&format!("mcpb:https://u:p@a.example/x@sha256:{HEX}"), "x@", "no plain url"),
        (&format!("mcpb:https://a.example/a b@sha256:{HEX}"), " b", "does not belong"),
        ("mcpb:https://a.example/x@sha256:12", "", "too short"),
        ("oci-layout:", "", "directory is missing"),
        ("oci-layout::v1", ":v1", "directory is missing"),
        ("oci-layout:dir:", "", "must follow"),
        ("oci-layout:dir:-x", "-x", "begins with"),
        ("oci-layout:dir:a b", " b", "does not belong"),
        ("oci-layout:dir@sha256:12", "", "too short"),
        (&format!("oci-layout:d:v1@sha256:{HEX}"), &format!("v1@sha256:{HEX}"), "not both"),
    ];
    for (text, part, why) in table {
        let error = text.parse::<Reference>().expect_err(text);
        let pointed = &text[error.at..];
        let near = pointed == part || pointed.starts_with(part) && !part.is_empty();
        assert!(near && error.why.contains(why), "{text:?}: {error} (at {:?}, want {part:?})", pointed);
        assert!(!error.to_string().contains('\n'), "{text:?}: an error is one line");
    }
}

#[test]
fn hints() {
    for (text, hint) in [("dir", "./"), ("https://a.b/c", "without the scheme"), ("pypi:x@1", "pypi:NAME==VERSION")] {
        assert!(text.parse::<Reference>().unwrap_err().hint().unwrap().contains(hint), "{text}");
    }
}

#[test]
fn a_version_is_the_tag_of_its_name() {
    assert_eq!(Selector::Version("1.0+b".into()).tag().as_deref(), Some("1.0_b"));
    assert_eq!(Selector::Latest.tag().as_deref(), Some("latest"));
    assert_eq!(digest().tag(), None);
}
