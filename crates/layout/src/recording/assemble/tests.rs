use super::*;

/// Directories with one directory in each, whose inodes share a block: `bg`,
/// `bg/messages`, `ca` and `ca/messages`.
fn index() -> Index {
    let directory = FileKind::Directory;
    let names = [
        (12, 2, "bg", directory, 50),
        (14, 2, "ca", directory, 50),
        (13, 12, "messages", directory, 50),
        (15, 14, "messages", directory, 50),
    ];
    let directories = [(2, 100, 1), (12, 101, 1), (13, 102, 1), (14, 103, 1), (15, 104, 1)];
    Index::of_parts(1024, &names, &directories)
}

fn assembled(what: Vec<TouchKind>) -> Vec<(Op, String)> {
    let what = what.into_iter().map(|what| (7, what)).collect();
    assembled_of(what, &index(), &mut |_, _| None)
}

/// The events of threads' touches, one after the other; all inodes were loaded.
fn assembled_of(
    what: Vec<(u32, TouchKind)>,
    index: &Index,
    holder: &mut dyn FnMut(Ino, &[u8]) -> Option<Lbn>,
) -> Vec<(Op, String)> {
    let touch = |(time, (tid, what))| RecordedTouch { time: time as u64, tid, what };
    let touches = what.into_iter().enumerate().map(touch).collect();
    let loaded = (12..16).map(Ino::new).collect();
    let known = EndState {
        loaded: &loaded,
        size: &mut |_, _| None,
        resident: &mut |_, _| PageSet::default(),
        holder,
    };
    let assembled = assemble(touches, index, Pages::Fetched, known);
    assert_eq!(assembled.unknown, Unknown::default());
    let path = |event: Event| (event.op, String::from_utf8(event.path).unwrap());
    assembled.events.into_iter().map(path).collect()
}

fn requested(block: u64) -> TouchKind {
    TouchKind::Requested(Extent::new(BlockNo::new(block), 1))
}

/// A block of the table was used.
fn table() -> TouchKind {
    TouchKind::Block(BlockNo::new(50))
}

fn shown(events: &[(Op, String)]) -> Vec<(Op, &str)> {
    events.iter().map(|(op, path)| (op.clone(), path.as_str())).collect()
}

#[test]
fn an_inode_is_looked_up_in_the_directory_that_was_just_read() {
    let (read, table) = (requested, table);
    let blocks =
        vec![read(100), read(101), table(), read(102), table(), read(103), table(), read(104)];
    assert_eq!(
        shown(&assembled(blocks)),
        [
            (Op::Read, "/"),
            (Op::Read, "/bg"),
            (Op::Lookup, "/bg/messages"),
            (Op::Read, "/bg/messages"),
            (Op::Lookup, "/ca"),
            (Op::Read, "/ca"),
            (Op::Lookup, "/ca/messages"),
            (Op::Read, "/ca/messages"),
        ]
    );
}

/// Two files whose inodes share a block of the table. The name of the first lies in the
/// first block of the root, that of the second in the second. `tells` is whether that
/// is known.
fn two_files(what: Vec<(u32, TouchKind)>, tells: bool) -> Vec<(Op, String)> {
    let regular = FileKind::Regular;
    let names = [(12, 2, "first", regular, 50), (13, 2, "second", regular, 50)];
    let index = Index::of_parts(1024, &names, &[(2, 100, 2)]);
    let lbn = |name: &[u8]| Lbn::new(u64::from(name == b"second"));
    assembled_of(what, &index, &mut |_, name| tells.then(|| lbn(name)))
}

#[test]
fn an_inode_is_one_whose_name_was_just_read() {
    let opened = TouchKind::Opened(Ino::new(12));
    let what = vec![(7, requested(100)), (7, requested(101)), (7, table()), (7, opened)];
    assert_eq!(shown(&two_files(what, true))[2], (Op::Lookup, "/second"));
}

#[test]
fn a_name_is_not_found_before_its_block_has_come() {
    // Another thread had the blocks read, and nothing tells in which the name is.
    let opened = TouchKind::Opened(Ino::new(12));
    let what = vec![(8, requested(101)), (7, table()), (8, requested(100)), (7, opened)];
    assert_eq!(shown(&two_files(what, true))[1], (Op::Lookup, "/second"));
    let what = vec![(7, table()), (8, requested(101))];
    assert_eq!(two_files(what, false)[0].0, Op::Read);
}

#[test]
fn a_directory_that_was_read_is_not_looked_up_afterwards() {
    let blocks = vec![requested(100), requested(101), requested(102), table(), requested(103)];
    assert_eq!(
        shown(&assembled(blocks)),
        [
            (Op::Read, "/"),
            (Op::Read, "/bg"),
            (Op::Read, "/bg/messages"),
            (Op::Lookup, "/ca"),
            (Op::Read, "/ca"),
            (Op::Lookup, "/ca/messages"),
        ]
    );
}
