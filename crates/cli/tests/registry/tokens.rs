//! A registry over TLS that wants tokens of another server, as the large public ones do: Debian's
//! docker-registry, which verifies the tokens, with a server of tokens in Python (`tokens.py`).

use crate::judges::{failure, ready, run};
use crate::workshop::Workshop;
use crate::{Protection, Registry, image_of_two_layers};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/registry/tokens.py");

/// The server of tokens, stopped with the value.
struct Tokens {
    port: String,
    process: Child,
}

impl Tokens {
    fn start(shop: &Workshop) -> Self {
        let mut process = Command::new("python3")
            .args([SCRIPT, shop.scratch.path().to_str().expect("path")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut port = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut port).expect("a port");
        Self { port: port.trim().to_string(), process }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An authority, a certificate by it for this machine, and one for tokens.
fn certificates(shop: &Workshop) {
    let file = |name: &str| shop.scratch.join(name);
    let new = ["req", "-newkey", "rsa:2048", "-nodes", "-days", "2"];
    let own = |name: &str, subject: &str| {
        let (key, certificate) = (file(&format!("{name}.key")), file(&format!("{name}.crt")));
        let rest = ["-x509", "-subj", subject, "-keyout", &key, "-out", &certificate];
        run("openssl", &[&new[..], &rest].concat());
    };
    own("authority", "/CN=authority of tests");
    own("tokens", "/CN=tokens of tests");
    let (key, request) = (file("server.key"), file("server.csr"));
    let rest = ["-subj", "/CN=127.0.0.1", "-keyout", &key, "-out", &request];
    run("openssl", &[&new[..], &rest].concat());
    let names = file("names");
    fs::write(&names, "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n").expect("write");
    let by = ["-CA", &file("authority.crt"), "-CAkey", &file("authority.key"), "-CAcreateserial"];
    let rest = ["-days", "2", "-extfile", &names, "-out", &file("server.crt")];
    run("openssl", &[&["x509", "-req", "-in", &request][..], &by, &rest].concat());
}

#[test]
fn tokens_are_those_that_a_registry_verifies() {
    if !(ready("docker-registry") && ready("skopeo") && ready("openssl")) {
        return;
    }
    let shop = Workshop::new("registry-tokens");
    image_of_two_layers(&shop);
    certificates(&shop);
    let tokens = Tokens::start(&shop);
    let registry = Registry::start(&shop, Protection::Tokens(&tokens.port));
    // By skopeo, which fetches tokens too.
    let authorities = shop.scratch.join("authorities");
    fs::create_dir(&authorities).expect("mkdir");
    fs::copy(shop.scratch.join("authority.crt"), format!("{authorities}/ca.crt")).expect("copy");
    let believed = ["--dest-cert-dir", &authorities];
    for name in ["open/image", "own/image"] {
        let (from, to) = (format!("oci:{}:two", shop.dir.display()), registry.name(name));
        let fixed = ["copy", "--quiet", "--insecure-policy", "--dest-creds=writer:ink"];
        run("skopeo", &[&fixed[..], &believed, &[&from, &to]].concat());
    }
    let log = shop.scratch.join("log");
    fs::remove_file(&log).expect("requests of skopeo");
    let requests = || {
        let all = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        all
    };
    let (open, own) = (registry.name("open/image"), registry.name("own/image"));
    let authority = shop.scratch.join("authority.crt");
    let manifest = |source: &str| {
        let mut command = shop.command(&["manifest", source]);
        command.env("SSL_CERT_FILE", &authority).output().expect("seekless")
    };
    let is_whole = |source: &str| {
        let listing = crate::judges::text(&manifest(source));
        assert!(listing.contains("./f-new ") && !listing.contains("f-gone"), "{listing}");
    };

    // A server that nobody vouches for is not believed, unless that is wanted.
    let (code, message) = failure(&shop.seekless(&["manifest", &open]));
    assert!(code == 6 && message.contains("no secure connection"), "{code}: {message}");
    assert!(message.contains("/etc/containers/certs.d/"), "{message}");
    assert_eq!(requests(), "");
    let listing = shop.listed(&open, &["--src-tls-verify=false"]);
    assert!(listing.contains("./f-new "), "{listing}");
    requests();

    // An image that everybody may read needs one token. The cache is emptied: it would not be fetched.
    fs::remove_dir_all(shop.cache()).expect("cache");
    is_whole(&open);
    assert_eq!(requests(), "- repository:open/image:pull\n");
    let (code, message) = failure(&manifest(&own));
    let wanted = format!("{} refuses to give it without credentials", registry.host);
    assert!(code == 6 && message.contains(&wanted), "{code}: {message}");
    assert_eq!(requests(), "- repository:own/image:pull\n");

    // A password, and a token of identity.
    let config = shop.scratch.join(".docker/config.json");
    fs::create_dir(shop.scratch.join(".docker")).expect("mkdir");
    let log_in = |user: &str, identity: Option<&str>| {
        use base64::Engine;
        let pair = base64::engine::general_purpose::STANDARD.encode(user);
        let mut entry = serde_json::json!({ "auth": pair });
        if let Some(identity) = identity {
            entry["identitytoken"] = identity.into();
        }
        let all = serde_json::json!({ "auths": { registry.host.clone(): entry } });
        fs::write(&config, all.to_string()).expect("write");
    };
    log_in("reader:secret", None);
    is_whole(&own);
    assert_eq!(requests(), "reader repository:own/image:pull\n");
    fs::remove_dir_all(shop.cache()).expect("cache");
    log_in("00000000-0000-0000-0000-000000000000:", Some("identity-of-reader"));
    is_whole(&own);
    assert_eq!(requests(), "reader repository:own/image:pull\n");
    for (user, identity) in [("reader:wrong", None), ("reader:", Some("identity-of-nobody"))] {
        log_in(user, identity);
        let (code, message) = failure(&manifest(&own));
        let wanted = format!("{} refuses the credentials of {config} (401", registry.host);
        assert!(code == 6 && message.contains(&wanted), "{code}: {message}");
        assert_eq!(requests(), "");
    }
}
