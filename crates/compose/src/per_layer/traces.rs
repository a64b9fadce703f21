//! Traces of a whole tree, for each of the layers that it was made of.

use seekless_fs::FileKind;
use seekless_fs::tree::{NodeId, Tree};
use seekless_layout::trace::{EventRef, Events, Op};
use std::collections::{HashMap, HashSet};

/// Symlinks followed before a path is given up, as the kernel.
const MAX_LINKS: usize = 40;

/// The events that concern each layer, the lowest first, with paths as the layer has them: symlinks
/// of the whole are followed. Only the layer that a file comes from has accesses to it, since those
/// below hide; every layer has those to directories. Repeated accesses to a directory or a symlink
/// read nothing more, and are left out.
pub(super) fn split(traces: &[Events], whole: &Tree, layers: Vec<&Tree>) -> Vec<Vec<Events>> {
    let mut found: Vec<Vec<Events>> = vec![Vec::with_capacity(traces.len()); layers.len()];
    let mut owners = Owners { layers, known: HashMap::new() };
    for events in traces {
        let mut split = Split::new(whole, &mut owners);
        // Ranges of a device are no file's.
        for event in events.iter().filter(|event| *event.op != Op::Device) {
            split.distribute(event);
        }
        for (found, own) in found.iter_mut().zip(split.own) {
            found.push(own);
        }
    }
    found
}

/// A trace being split.
struct Split<'a, 'l> {
    whole: &'a Tree,
    owners: &'a mut Owners<'l>,
    /// The events of each layer.
    own: Vec<Events>,
    /// Accesses to directories and symlinks, and to paths that are missing, which the layers have.
    seen: HashSet<(Op, Vec<u8>)>,
    /// The lowest of the layers that search a directory; those above it do so too.
    searched: HashMap<Vec<u8>, usize>,
}

impl<'a, 'l> Split<'a, 'l> {
    fn new(whole: &'a Tree, owners: &'a mut Owners<'l>) -> Self {
        let own = vec![Events::default(); owners.layers.len()];
        Self { whole, owners, own, seen: HashSet::new(), searched: HashMap::new() }
    }

    fn distribute(&mut self, event: EventRef<'_>) {
        let follow = !matches!(event.op, Op::Readlink | Op::Lookup | Op::Stat);
        let Resolved { path, links, node } = resolve(self.whole, event.path, follow);
        for link in links {
            if self.seen.insert((Op::Readlink, link.clone())) {
                let op = &Op::Readlink;
                self.push(EventRef { op, path: &link, offset: 0, length: None, ..event });
            }
        }
        let is_file = node.is_some_and(|node| self.whole.node(node).kind != FileKind::Directory);
        let event = EventRef { path: &path, ..event };
        if is_file {
            self.push(event);
        } else if self.seen.insert((event.op.clone(), path.clone())) {
            self.own.iter_mut().for_each(|events| events.push_ref(event));
        }
    }

    /// Adds an access to a file to the layer that it comes from. Layers above are searched for its
    /// name.
    fn push(&mut self, event: EventRef<'_>) {
        let Some(owner) = self.owners.of(event.path) else { return };
        let slash = event.path.iter().rposition(|&byte| byte == b'/').unwrap_or_default();
        let dir = &event.path[..slash.max(1).min(event.path.len())];
        self.own[owner].push_ref(event);
        let above = owner + 1;
        let known = self.searched.get(dir).copied().unwrap_or(self.own.len());
        if above < known {
            let search = EventRef { op: &Op::Readdir, path: dir, offset: 0, length: None, ..event };
            self.own[above..known].iter_mut().for_each(|events| events.push_ref(search));
            self.searched.insert(dir.to_vec(), above);
        }
    }
}

/// The layers that files come from.
struct Owners<'l> {
    layers: Vec<&'l Tree>,
    known: HashMap<Vec<u8>, Option<usize>>,
}

impl Owners<'_> {
    /// The uppermost layer that has a path.
    fn of(&mut self, path: &[u8]) -> Option<usize> {
        if let Some(&owner) = self.known.get(path) {
            return owner;
        }
        let owner = self.layers.iter().rposition(|tree| tree.resolve(path).is_some());
        self.known.insert(path.to_vec(), owner);
        owner
    }
}

/// A path without symlinks.
struct Resolved {
    /// With a leading slash. Behind a name that is missing, as it was.
    path: Vec<u8>,
    /// The paths of symlinks on the way.
    links: Vec<Vec<u8>>,
    /// The file, if all of the path exists.
    node: Option<NodeId>,
}

/// Follows the symlinks on the way to a path, and at its end as well if that is wanted.
fn resolve(tree: &Tree, path: &[u8], follow_last: bool) -> Resolved {
    let mut rest = components(path);
    let mut stack: Vec<(NodeId, Vec<u8>)> = Vec::new();
    let mut links = Vec::new();
    while let Some(name) = rest.pop() {
        if name == b".." {
            stack.pop();
            continue;
        }
        let here = stack.last().map_or(NodeId::ROOT, |(node, _)| *node);
        let Some(entry) = tree.child(here, &name) else {
            rest.push(name);
            break;
        };
        let node = tree.node(entry.node);
        let is_followed = node.kind == FileKind::Symlink && (follow_last || !rest.is_empty());
        stack.push((entry.node, name));
        if !is_followed {
            continue;
        }
        if links.len() >= MAX_LINKS {
            break;
        }
        links.push(joined(stack.iter().map(|(_, name)| name.as_slice())));
        stack.pop();
        let target = tree.target(node);
        if target.starts_with(b"/") {
            stack.clear();
        }
        rest.extend(components(target));
    }
    let node = stack.last().map_or(NodeId::ROOT, |(node, _)| *node);
    let names = stack.iter().map(|(_, name)| name.as_slice());
    let path = joined(names.chain(rest.iter().rev().map(Vec::as_slice)));
    Resolved { path, links, node: rest.is_empty().then_some(node) }
}

/// A path of these names, with a leading slash.
fn joined<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

/// A path's components, last first; empty ones and `.` left out.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.rsplit(|&byte| byte == b'/');
    names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_fs::Timestamp;
    use seekless_fs::tree::{NewPayload, NodeAttr, TreeBuilder};
    use seekless_layout::trace::Event;
    use seekless_units::Nanos;

    /// A tree of these paths: directories end in a slash, symlinks have a target behind `>`.
    fn tree(paths: &[&str]) -> Tree {
        let attr = |kind| NodeAttr {
            kind,
            perm: 0o755,
            uid: 0,
            gid: 0,
            size: 1,
            mtime: Timestamp::default(),
            times: None,
            flags: 0,
        };
        let mut builder = TreeBuilder::new(attr(FileKind::Directory));
        for path in paths {
            let (path, target) = path.split_once('>').unwrap_or((path, ""));
            let is_dir = path.ends_with('/');
            let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
            let last = names.pop().unwrap();
            let parent = names.iter().fold(NodeId::ROOT, |dir, name| {
                builder.child(dir, name.as_bytes()).expect("directories come first")
            });
            let (kind, payload) = match target {
                _ if is_dir => (FileKind::Directory, NewPayload::None),
                "" => (FileKind::Regular, NewPayload::Content(0)),
                target => (FileKind::Symlink, NewPayload::Target(target.as_bytes())),
            };
            builder.add(parent, last.as_bytes(), attr(kind), payload).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn accesses_belong_to_the_layer_that_a_file_comes_from() {
        let below = tree(&["usr/", "usr/sh", "usr/old", "bin>usr"]);
        let above = tree(&["usr/", "usr/sh"]);
        let whole = tree(&["usr/", "usr/sh", "usr/old", "bin>usr"]);
        let event = |op, path: &str| Event::new(Nanos::ZERO, op, path.into());
        let events: Events = [
            event(Op::Read, "/bin/sh"),
            event(Op::Read, "/usr/old"),
            event(Op::Readdir, "/bin"),
            event(Op::Lookup, "/bin/none"),
            // Nothing more of directories and symlinks.
            event(Op::Read, "/bin/sh"),
            event(Op::Read, "/usr/old"),
            event(Op::Readdir, "/usr"),
            event(Op::Lookup, "/bin/none"),
            event(Op::Device, "/"),
        ]
        .into_iter()
        .collect();
        let found = split(&[events], &whole, vec![&below, &above]);
        let shown = |events: &Events| -> Vec<String> {
            let line = |event: EventRef<'_>| {
                format!("{:?} {}", event.op, String::from_utf8_lossy(event.path))
            };
            events.iter().map(line).collect()
        };
        assert_eq!(
            shown(&found[0][0]),
            ["Readlink /bin", "Read /usr/old", "Readdir /usr", "Lookup /usr/none", "Read /usr/old"]
        );
        assert_eq!(
            shown(&found[1][0]),
            [
                "Readdir /",
                "Read /usr/sh",
                "Readdir /usr",
                "Readdir /usr",
                "Lookup /usr/none",
                "Read /usr/sh"
            ]
        );
    }
}
