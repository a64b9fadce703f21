//! What an image shows, and what of it is lost or belongs to others.

use super::state::SECTOR;
use std::collections::BTreeMap;

/// What kind of thing a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
}

/// A file, directory or symlink as an independent reader shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Contents of a file, target of a symlink.
    pub(crate) data: Vec<u8>,
    /// Mode and extended attributes, as text.
    pub(crate) attributes: String,
}

/// Everything below a root, by path; paths begin with `/`.
pub(crate) type Tree = BTreeMap<String, Node>;

/// What happened to what had been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Harm {
    /// Everything is there.
    None,
    /// The bytes of something durable are only under a name that the check made.
    Unnamed,
    /// Something that was there before the operation, and that the operation
    /// does not remove, is gone or changed.
    Lost,
    /// A name shows bytes that were never written to it.
    Foreign,
}

/// Which state of the operation is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shows {
    Before,
    After,
    /// Part of the operation.
    Part,
}

/// Where a check puts what has no name, and how it is recognised.
fn is_found(path: &str) -> bool {
    path.starts_with("/lost+found/") || (path.starts_with("/FSCK") && path.ends_with(".REC"))
}

/// Compares what a recovered image shows with what the images before and after
/// each step show.
pub(crate) fn judge(steps: &[Tree], shown: &Tree) -> (Harm, Shows) {
    let mut harm = Harm::None;
    for path in steps[0].keys() {
        let durable = steps.iter().all(|tree| tree.contains_key(path));
        if durable && !shown.contains_key(path) {
            harm = harm.max(Harm::Lost);
        }
    }
    for (path, node) in shown.iter().filter(|(path, _)| !is_found(path)) {
        let versions: Vec<&Node> = steps.iter().filter_map(|tree| tree.get(path)).collect();
        let before = steps[0].get(path);
        // A name that is moved away may be empty as soon as the new one is whole.
        let moved = !steps[steps.len() - 1].contains_key(path)
            && before.is_some_and(|before| named(before, steps, shown));
        if moved && node.kind == Kind::File && node.data.is_empty() {
            continue;
        }
        harm = harm.max(one(node, &versions, before));
    }
    // What has another name by now must have one of its names.
    for node in steps[0].values().filter(|node| !node.data.is_empty()) {
        let kept = steps.iter().all(|tree| tree.values().any(|other| alike(node, other)));
        if kept && !named(node, steps, shown) {
            // A chain of clusters without a name has lost the file's length.
            let found = |(at, other): (&String, &Node)| {
                is_found(at) && other.kind == node.kind && other.data.starts_with(&node.data)
            };
            let found = shown.iter().any(found);
            harm = harm.max(if found { Harm::Unnamed } else { Harm::Lost });
        }
    }
    let visible = |tree: &Tree| -> Tree {
        let nodes = tree.iter().filter(|(path, _)| !is_found(path));
        nodes.map(|(path, node)| (path.clone(), node.clone())).collect()
    };
    let now = visible(shown);
    let shows = if now == visible(&steps[0]) {
        Shows::Before
    } else if now == visible(&steps[steps.len() - 1]) {
        Shows::After
    } else {
        Shows::Part
    };
    (harm, shows)
}

/// Whether a file has one of the names that it has in some step.
fn named(node: &Node, steps: &[Tree], shown: &Tree) -> bool {
    let at = |path: &String| {
        steps.iter().any(|tree| tree.get(path).is_some_and(|there| alike(node, there)))
    };
    shown.iter().any(|(path, other)| alike(node, other) && at(path))
}

/// Whether both are the same file, whatever its mode.
fn alike(one: &Node, other: &Node) -> bool {
    one.kind == other.kind && one.data == other.data
}

/// Judges one name by what it ever led to. Where nothing durable was before, a
/// file may be shorter, or have zeros; else only the bytes of one of the versions.
fn one(node: &Node, versions: &[&Node], before: Option<&Node>) -> Harm {
    if versions.is_empty() {
        return Harm::Foreign;
    }
    let same_kind: Vec<&&Node> = versions.iter().filter(|v| v.kind == node.kind).collect();
    if same_kind.is_empty() || !same_kind.iter().any(|v| v.attributes == node.attributes) {
        return if before.is_some() { Harm::Lost } else { Harm::Foreign };
    }
    if node.kind != Kind::File {
        return match same_kind.iter().any(|v| v.data == node.data) {
            true => Harm::None,
            false => Harm::Foreign,
        };
    }
    let durable = match before {
        Some(_) => versions.iter().map(|v| v.data.len()).min().unwrap_or(0),
        None => 0,
    };
    let longest = versions.iter().map(|v| v.data.len()).max().unwrap_or(0);
    let mut harm = if node.data.len() < durable { Harm::Lost } else { Harm::None };
    for (n, sector) in node.data.chunks(SECTOR).enumerate() {
        let at = n * SECTOR;
        let own = same_kind.iter().any(|v| {
            let theirs = v.data.get(at..).unwrap_or_default();
            let len = sector.len().min(theirs.len());
            // Past the end of that version a block has zeros.
            sector[..len] == theirs[..len] && sector[len..].iter().all(|&byte| byte == 0)
        });
        let zeros = sector.iter().all(|&byte| byte == 0);
        harm = harm.max(match (own, zeros) {
            (true, _) => Harm::None,
            (false, true) if at >= durable => Harm::None,
            (false, true) => Harm::Lost,
            (false, false) => Harm::Foreign,
        });
    }
    if node.data.len() > longest && node.data[longest..].iter().any(|&byte| byte != 0) {
        harm = Harm::Foreign;
    }
    harm
}
