//! Container images from registries: Debian's docker-registry, with images that skopeo puts there
//! and fetches as a judge, and servers that lie, break off, refuse and are silent.

mod hostile;
#[path = "../judges/mod.rs"]
mod judges;
mod server;
mod tokens;
#[allow(dead_code, reason = "archives are made by other tests")]
#[path = "../compose/workshop.rs"]
mod workshop;

use judges::{check, failure, ready, run, text};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use workshop::Workshop;

/// A line of htpasswd for the user `reader` with the password `secret`.
const USERS: &str = "reader:$2y$04$tnMUswUVBWkw4U7NLfzv3ulsikYxIprMMgzyNKc8YTdnwXi2JRPJ.";

/// Debian's registry on this machine, stopped with the value.
struct Registry {
    host: String,
    process: Child,
}

/// Those whom a registry lets in.
enum Protection<'a> {
    /// Everybody.
    None,
    /// Users with passwords.
    Passwords,
    /// Over TLS, with tokens of the server at a port of this machine.
    Tokens(&'a str),
}

impl Registry {
    fn start(shop: &Workshop, protection: Protection<'_>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let host = listener.local_addr().expect("address").to_string();
        drop(listener);
        let dir = shop.scratch.path().display();
        let (tls, access) = match protection {
            Protection::None => (String::new(), String::new()),
            Protection::Passwords => {
                fs::write(shop.scratch.join("users"), format!("{USERS}\n")).expect("write");
                let access = format!("auth: {{htpasswd: {{realm: here, path: '{dir}/users'}}}}\n");
                (String::new(), access)
            }
            Protection::Tokens(port) => (
                format!(", tls: {{certificate: '{dir}/server.crt', key: '{dir}/server.key'}}"),
                format!(
                    "auth: {{token: {{realm: 'https://127.0.0.1:{port}/token', service: here, \
                     issuer: tests, rootcertbundle: '{dir}/tokens.crt'}}}}\n"
                ),
            ),
        };
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '{host}'{tls}}}\n\
             storage: {{filesystem: {{rootdirectory: '{dir}/store'}}}}\n{access}"
        );
        let path = shop.scratch.join("registry.yml");
        fs::write(&path, config).expect("write");
        let process = Command::new("docker-registry")
            .args(["serve", &path])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry");
        let registry = Self { host, process };
        for _ in 0..200 {
            if TcpStream::connect(&registry.host).is_ok() {
                return registry;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("docker-registry does not start");
    }

    /// Puts the image of a layout into the registry.
    fn push(&self, shop: &Workshop, tag: &str, name: &str, options: &[&str]) {
        let (from, to) = (format!("oci:{}:{tag}", shop.dir.display()), self.name(name));
        let fixed = ["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false"];
        run("skopeo", &[&fixed, options, &[&from, &to]].concat());
    }

    fn name(&self, name: &str) -> String {
        format!("docker://{}/{name}", self.host)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Workshop {
    /// Runs the command with a cache and with files of credentials below the scratch directory.
    fn seekless(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("seekless")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = judges::command(args);
        let home = self.scratch.path();
        for name in ["REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
            command.env_remove(name);
        }
        command.env_remove("XDG_CONFIG_HOME").env_remove("SSL_CERT_FILE").env("HOME", home);
        command
    }

    /// The manifest of a source's tree.
    fn listed(&self, source: &str, options: &[&str]) -> String {
        text(&self.seekless(&[&["manifest", source], options].concat()))
    }

    fn cache(&self) -> std::path::PathBuf {
        self.scratch.path().join(".cache/seekless/images")
    }
}

/// A layer as gzip compresses it.
pub(crate) fn gzip(layer: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(layer).expect("memory");
    packed.finish().expect("memory")
}

/// A layout with an image of two layers.
fn image_of_two_layers(shop: &Workshop) {
    let base = shop.layer(&[("f-base", "base"), ("f-gone", "gone"), ("d/f", "deep")]);
    let upper = shop.layer(&[("f-new", "new"), (".wh.f-gone", "")]);
    shop.layout(&[shop.image("two", &[base, upper])]);
}

#[test]
fn an_image_is_that_which_skopeo_fetches() {
    if !(ready("docker-registry") && ready("skopeo")) {
        return;
    }
    let shop = Workshop::new("registry");
    image_of_two_layers(&shop);
    let registry = Registry::start(&shop, Protection::None);
    let mut digests = Vec::new();
    for (name, options) in [("oci", &[][..]), ("docker", &["--format", "v2s2"])] {
        registry.push(&shop, "two", &format!("some/{name}:x"), options);
        let source = registry.name(&format!("some/{name}:x"));
        let judged = format!("oci:{}:x", shop.scratch.join(name));
        let fixed = ["copy", "--quiet", "--insecure-policy", "--src-tls-verify=false"];
        run("skopeo", &[&fixed[..], &[&source, &judged]].concat());
        let listing = shop.listed(&source, &[]);
        assert_eq!(listing, shop.listed(&shop.scratch.join(name), &[]));
        assert!(listing.contains("./f-new ") && !listing.contains("f-gone"), "{listing}");
        if name == "oci" {
            // The cache is a layout that others read too; skopeo takes no others from a layout.
            let cached = format!("oci:{}:{}/some/{name}:x", shop.cache().display(), registry.host);
            let told = run("skopeo", &["inspect", &cached]);
            let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
            digests.push(told["Digest"].as_str().expect("digest").to_string());
        }
        let image = shop.scratch.join("image");
        text(&shop.seekless(&["build", &source, "-o", &image, "--force"]));
        check(&image);
        assert_eq!(shop.listed(&image, &[]), listing);
    }
    let source = registry.name("some/oci:x");
    // An image for each layer, as of the layout that skopeo wrote.
    let (ours, theirs) = (shop.scratch.join("layers"), shop.scratch.join("layers-of-layout"));
    text(&shop.seekless(&["build", &source, "--layers", "-o", &ours]));
    text(&shop.seekless(&["build", &shop.scratch.join("oci"), "--layers", "-o", &theirs]));
    assert_eq!(fs::read_dir(&ours).expect("images").count(), 3);
    run("diff", &["-r", &ours, &theirs]);
    let image_of_none = shop.scratch.join("none");
    let (code, message) = failure(&shop.seekless(&[
        "build",
        &source,
        "-o",
        &image_of_none,
        "--whiteouts",
        "overlay",
    ]));
    assert!(code == 2 && message.contains("one source, the archive of a layer"), "{message}");
    // In layers, and over another source.
    let tree = shop.scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/f-own"), "own").expect("write");
    let image = shop.scratch.join("shared");
    text(&shop.seekless(&["build", &source, &tree, "-o", &image, "--share"]));
    check(&image);
    let listing = shop.listed(&image, &[]);
    assert!(listing.contains("./f-own ") && listing.contains("./f-new "), "{listing}");
    let (missing, other) = (registry.name("some/none"), registry.name("some/oci:y"));
    let wrong = [
        (&["manifest", &missing][..], 6, "does not have manifests/latest"),
        (&["manifest", &other], 6, "does not have manifests/y"),
        (&["manifest", &source, "--tag", "x"], 2, "its tag is a part of its name"),
        (&["manifest", "docker://Upper Case"], 2, "images are named docker://"),
        (&["manifest", &source, "--platform", "linux/s390x"], 4, "no image for linux/s390x"),
    ];
    for (args, code, part) in wrong {
        let (found, message) = failure(&shop.seekless(args));
        assert!(found == code && message.contains(part), "{found}: {message}");
    }
    // One named by its digest needs no registry once it is there.
    let by_digest = registry.name(&format!("some/oci@{}", digests[0]));
    let host = registry.host.clone();
    drop(registry);
    shop.listed(&by_digest, &[]);
    let (code, message) = failure(&shop.seekless(&["manifest", &source]));
    assert_eq!(code, 6);
    assert!(message.contains(&format!("{host} does not answer: connection refused")), "{message}");
}

#[test]
fn a_platform_is_chosen_from_an_index() {
    if !(ready("docker-registry") && ready("skopeo")) {
        return;
    }
    let shop = Workshop::new("registry-index");
    let platforms = ["amd64", "arm64"].map(|architecture| {
        let layer = shop.layer(&[("f-of", architecture)]);
        let mut image = shop.image("none", &[layer]);
        image["annotations"] = serde_json::json!({});
        image["platform"] = serde_json::json!({ "os": "linux", "architecture": architecture });
        image
    });
    let index = serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": platforms,
    });
    let mut root =
        shop.blob("application/vnd.oci.image.index.v1+json", index.to_string().as_bytes());
    root["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": "both" });
    shop.layout(&[root]);
    let registry = Registry::start(&shop, Protection::None);
    registry.push(&shop, "both", "both", &["--all"]);
    let source = registry.name("both");
    let digest = |contents: &str| workshop::digest(contents.as_bytes());
    for architecture in ["amd64", "arm64"] {
        let listing = shop.listed(&source, &["--platform", &format!("linux/{architecture}")]);
        assert!(listing.contains(&digest(architecture)), "{listing}");
    }
    let own = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    assert!(shop.listed(&source, &[]).contains(&digest(own)));
    let (code, message) =
        failure(&shop.seekless(&["manifest", &source, "--platform", "linux/riscv64"]));
    assert_eq!(code, 4);
    assert!(message.contains("there are: linux/amd64, linux/arm64"), "{message}");
}

#[test]
fn credentials_are_those_of_skopeo_and_docker() {
    if !(ready("docker-registry") && ready("skopeo")) {
        return;
    }
    let shop = Workshop::new("registry-users");
    image_of_two_layers(&shop);
    let registry = Registry::start(&shop, Protection::Passwords);
    registry.push(&shop, "two", "own/image", &["--dest-creds=reader:secret"]);
    let source = registry.name("own/image");
    let (code, message) = failure(&shop.seekless(&["manifest", &source]));
    assert_eq!(code, 6);
    let config = shop.scratch.join(".docker/config.json");
    assert!(message.contains("needs credentials") && message.contains(&config), "{message}");
    // The file of docker, as skopeo writes it.
    let login = |password: &str| {
        fs::create_dir_all(Path::new(&config).parent().expect("parent")).expect("mkdir");
        let fixed = ["login", "--tls-verify=false", "--authfile", &config, "-u", "reader"];
        run("skopeo", &[&fixed[..], &["-p", password, &registry.host]].concat());
    };
    login("secret");
    assert!(shop.listed(&source, &[]).contains("./f-new "));
    let text = fs::read_to_string(&config).expect("read");
    let pair = |password: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(format!("reader:{password}"))
    };
    fs::write(&config, text.replace(&pair("secret"), &pair("wrong"))).expect("write");
    let (code, message) = failure(&shop.seekless(&["manifest", &source]));
    assert_eq!(code, 6);
    let wanted = format!("{} refuses the credentials of {config} (401", registry.host);
    assert!(message.contains(&wanted) && !message.contains(&pair("wrong")), "{message}");
    // A helper.
    let helper = shop.scratch.join("docker-credential-here");
    let script = "#!/bin/sh\nread host\nprintf '{\"Username\":\"reader\",\"Secret\":\"secret\"}'\n";
    fs::write(&helper, script).expect("write");
    run("chmod", &["755", &helper]);
    fs::write(&config, r#"{"credsStore":"here"}"#).expect("write");
    let path = format!("{}:{}", shop.scratch.path().display(), std::env::var("PATH").unwrap());
    let mut command = shop.command(&["manifest", &source]);
    assert!(judges::text(&command.env("PATH", path).output().unwrap()).contains("./f-new "));
    let (code, message) = failure(&shop.seekless(&["manifest", &source]));
    assert!(code == 6 && message.contains("docker-credential-here"), "{message}");
}
