//! Parts of a source under other paths.

use seekless_fs::source::Source;
use seekless_fs::tree::{NodeId, Payload, Tree};
use seekless_fs::{FileKind, FsError};
use seekless_source::{DirectorySource, Graft, TreeOptions, graft};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

/// A directory with symlinks to directories, one that leads nowhere, and a file with two names.
fn source() -> (tempfile::TempDir, Arc<dyn Source + Send>) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let at = |path: &str| dir.path().join(path);
    for path in ["usr/bin", "var/lib"] {
        fs::create_dir_all(at(path)).expect("mkdir");
    }
    fs::write(at("usr/bin/sh"), "shell").expect("write");
    fs::hard_link(at("usr/bin/sh"), at("usr/bin/dash")).expect("link");
    fs::write(at("var/lib/one"), "1").expect("write");
    symlink("usr/bin", at("bin")).expect("symlink");
    symlink("/var/lib", at("usr/state")).expect("symlink");
    symlink("loop", at("loop")).expect("symlink");
    let source = DirectorySource::open(dir.path(), &TreeOptions::default()).expect("open");
    (dir, Arc::new(source))
}

fn parts(pairs: &[(&str, &str)]) -> Vec<Graft> {
    let part = |&(from, to): &(&str, &str)| Graft { from: from.into(), to: to.into() };
    pairs.iter().map(part).collect()
}

/// All paths, with the contents of regular files.
fn listed(source: &dyn Source) -> Vec<String> {
    let tree = source.tree();
    let mut found = Vec::new();
    let mut pending = vec![NodeId::ROOT];
    while let Some(dir) = pending.pop() {
        for entry in tree.children(dir) {
            let path = String::from_utf8(tree.path(dir)).expect("text");
            let name = String::from_utf8(tree.name(entry).to_vec()).expect("text");
            let path = match path.as_str() {
                "" => format!("/{name}"),
                path => format!("/{path}/{name}"),
            };
            let node = tree.node(entry.node);
            match node.kind {
                FileKind::Directory => {
                    found.push(format!("{path}/"));
                    pending.push(entry.node);
                }
                FileKind::Regular => found.push(format!("{path}={}", read(source, entry.node))),
                _ => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn read(source: &dyn Source, node: NodeId) -> String {
    assert!(matches!(source.tree().node(node).payload, Payload::Content(_)));
    let mut buf = vec![0; source.tree().node(node).size as usize];
    source.open(node).expect("open").read_at(0, &mut buf).expect("read");
    String::from_utf8(buf).expect("text")
}

fn node(tree: &Tree, path: &str) -> NodeId {
    tree.resolve(path.as_bytes()).unwrap_or_else(|| panic!("{path}"))
}

#[test]
fn a_directory_becomes_the_root() {
    let (_dir, source) = source();
    let made = graft(source, "tree", &parts(&[("usr", "")]), &[]).expect("a tree");
    assert_eq!(listed(&made), ["/bin/", "/bin/dash=shell", "/bin/sh=shell", "/state"]);
    let tree = made.tree();
    assert_eq!(node(tree, "bin/sh"), node(tree, "bin/dash"));
    assert_eq!(tree.node(node(tree, "bin/sh")).names, 2);
}

#[test]
fn parts_merge_and_symlinks_on_the_way_are_followed() {
    let (_dir, source) = source();
    let wanted = parts(&[("bin", "programs"), ("usr/state/one", "programs/one"), ("var/lib", "")]);
    let made = graft(source, "tree", &wanted, &[b"proc".into(), b"a/b".into()]).expect("a tree");
    assert_eq!(
        listed(&made),
        [
            "/a/",
            "/a/b/",
            "/one=1",
            "/proc/",
            "/programs/",
            "/programs/dash=shell",
            "/programs/one=1",
            "/programs/sh=shell",
        ]
    );
    assert_eq!(made.tree().node(node(made.tree(), "a/b")).perm, 0o755);
}

#[test]
fn parts_that_are_missing_are_named() {
    let (_dir, source) = source();
    for from in ["usr/lib", "loop", "usr/bin/sh/x"] {
        let error = graft(source.clone(), "tree", &parts(&[(from, "")]), &[]).err();
        let Some(FsError::NotFound(what)) = error else { panic!("{from}: {error:?}") };
        assert_eq!(what, format!("tree: /{from}"));
    }
    let both = parts(&[("usr/bin/sh", "x"), ("var", "x/y")]);
    assert!(matches!(graft(source, "tree", &both, &[]), Err(FsError::Invalid(_))));
}
