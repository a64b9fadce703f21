//! Container images made by hand: layers, archives and layouts.

use crate::judges::{Scratch, run};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;

/// A scratch directory in which container images are made.
pub(crate) struct Workshop {
    pub(crate) scratch: Scratch,
    pub(crate) dir: PathBuf,
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Workshop {
    pub(crate) fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let dir = scratch.path().join("work");
        fs::create_dir(&dir).expect("mkdir");
        Self { scratch, dir }
    }

    /// A layer with these files, as an archive.
    pub(crate) fn layer(&self, files: &[(&str, &str)]) -> Vec<u8> {
        let tree = self.scratch.path().join("layer");
        fs::create_dir(&tree).expect("mkdir");
        for (name, contents) in files {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
            fs::write(path, contents).expect("write");
        }
        let archive = self.scratch.join("layer.tar");
        run("tar", &["--mtime=@0", "-C", tree.to_str().expect("path"), "-cf", &archive, "."]);
        fs::remove_dir_all(tree).expect("remove");
        fs::read(archive).expect("read")
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
        fs::write(path, bytes).expect("write");
    }

    /// Packs the prepared files as an archive, and empties the directory.
    pub(crate) fn pack(&self, name: &str) -> String {
        let archive = self.scratch.join(name);
        let mut names: Vec<String> = fs::read_dir(&self.dir)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("name"))
            .collect();
        names.sort();
        let mut args = vec!["-C", self.dir.to_str().expect("path"), "-cf", &archive];
        args.extend(names.iter().map(String::as_str));
        run("tar", &args);
        fs::remove_dir_all(&self.dir).expect("remove");
        fs::create_dir(&self.dir).expect("mkdir");
        archive
    }

    pub(crate) fn config(&self, layers: &[Vec<u8>]) -> Vec<u8> {
        let diffs: Vec<String> =
            layers.iter().map(|layer| format!("sha256:{}", digest(layer))).collect();
        serde_json::json!({
            "architecture": "amd64", "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": diffs },
        })
        .to_string()
        .into_bytes()
    }

    /// Adds an image as podman saves it: layers are named by their digests.
    pub(crate) fn saved(&self, tags: &[&str], layers: &[Vec<u8>]) -> serde_json::Value {
        let config = self.config(layers);
        let name = format!("{}.json", digest(&config));
        self.put(&name, &config);
        let files: Vec<String> =
            layers.iter().map(|layer| format!("{}.tar", digest(layer))).collect();
        for (file, layer) in files.iter().zip(layers) {
            self.put(file, layer);
        }
        serde_json::json!({ "Config": name, "RepoTags": tags, "Layers": files })
    }

    /// Adds a blob to a layout; returns its descriptor.
    pub(crate) fn blob(&self, kind: &str, bytes: &[u8]) -> serde_json::Value {
        let digest = digest(bytes);
        self.put(&format!("blobs/sha256/{digest}"), bytes);
        serde_json::json!({
            "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len(),
        })
    }

    /// Adds an image to a layout; returns the descriptor of its manifest, with a tag.
    pub(crate) fn image(&self, tag: &str, layers: &[Vec<u8>]) -> serde_json::Value {
        self.configured(tag, layers, &self.config(layers))
    }

    /// The same with a configuration of its own.
    pub(crate) fn configured(
        &self,
        tag: &str,
        layers: &[Vec<u8>],
        config: &[u8],
    ) -> serde_json::Value {
        let prefix = "application/vnd.oci.image";
        let config = self.blob(&format!("{prefix}.config.v1+json"), config);
        let layers: Vec<_> = layers
            .iter()
            .map(|layer| self.blob(&format!("{prefix}.layer.v1.tar"), layer))
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": format!("{prefix}.manifest.v1+json"),
            "config": config, "layers": layers,
        });
        let mut found =
            self.blob(&format!("{prefix}.manifest.v1+json"), manifest.to_string().as_bytes());
        found["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": tag });
        found
    }

    pub(crate) fn layout(&self, images: &[serde_json::Value]) {
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": images });
        self.put("index.json", index.to_string().as_bytes());
        self.put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    }
}
