//! Operations, without the state that they meet: directories, names and files are numbers that are
//! taken modulo those there are.

use crate::list::list;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::{bool::weighted, prop_oneof};
use seekless_fs::FileKind;

/// A name there is, or a new one.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    New(u8),
    /// One of those in the directory, if there is one; else a new one.
    There(u16, u8),
}

#[derive(Clone, Debug)]
pub(crate) enum New {
    Regular,
    Directory,
    /// With so long a target.
    Symlink(usize),
    Special(FileKind),
}

/// Where a file is written or cut: its end, within it, or up to so many bytes behind it.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Start,
    End,
    Within(u32),
    Behind(u32, usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Make {
        dir: u16,
        name: u8,
        new: New,
    },
    Link {
        file: u16,
        dir: u16,
        name: u8,
    },
    /// While somebody has it open, perhaps.
    Unlink {
        dir: u16,
        name: Name,
        held: bool,
    },
    Rmdir {
        dir: u16,
        name: Name,
    },
    Rename {
        from: u16,
        name: Name,
        to: u16,
        new: Name,
        exchange: bool,
    },
    Write {
        file: u16,
        at: Place,
        len: usize,
        fill: u64,
    },
    Truncate {
        file: u16,
        to: Place,
    },
    Read {
        file: u16,
    },
    SetXattr {
        file: u16,
        name: u8,
        len: usize,
        fill: u64,
    },
    RemoveXattr {
        file: u16,
        name: u8,
    },
    Allocate {
        file: u16,
        at: Place,
        len: usize,
    },
    Chmod {
        file: u16,
    },
    Fsync {
        file: u16,
    },
    Sync,
    Sleep,
}

fn there() -> impl Strategy<Value = Name> {
    prop_oneof![
        1 => (0..60u8).prop_map(Name::New),
        9 => (any::<u16>(), 0..60u8).prop_map(|(at, new)| Name::There(at, new)),
    ]
}

fn new() -> impl Strategy<Value = New> {
    prop_oneof![
        6 => Just(New::Regular),
        2 => Just(New::Directory),
        1 => select(vec![5, 59, 60, 119, 120, 700]).prop_map(New::Symlink),
        1 => Just(New::Special(FileKind::Fifo)),
    ]
}

fn write(small: bool) -> impl Strategy<Value = Op> {
    let (often, rare, lens) = if small {
        (60, 2000, [1, 20, 40, 60, 90, 300])
    } else {
        (5000, 300_000, [1, 300, 1024, 5000, 40_000, 150_000])
    };
    let behind = move |far: usize| any::<u32>().prop_map(move |at| Place::Behind(at, far));
    let at = prop_oneof![
        24 => Just(Place::End),
        12 => any::<u32>().prop_map(Place::Within),
        11 => behind(often),
        1 => behind(rare),
    ];
    let len = select(lens.to_vec()).prop_flat_map(|most: usize| 1..=most);
    (any::<u16>(), at, len, any::<u64>()).prop_map(|(file, at, len, fill)| Op::Write {
        file,
        at,
        len,
        fill,
    })
}

fn truncate(small: bool) -> impl Strategy<Value = Op> {
    let far = if small { 50 } else { 80_000 };
    let to = prop_oneof![
        Just(Place::Start),
        any::<u32>().prop_map(Place::Within),
        any::<u32>().prop_map(move |at| Place::Behind(at, far)),
    ];
    (any::<u16>(), to).prop_map(|(file, to)| Op::Truncate { file, to })
}

fn rename() -> impl Strategy<Value = Op> {
    let new = prop_oneof![(0..60u8).prop_map(Name::New), there()];
    (any::<u16>(), there(), any::<u16>(), new, weighted(0.2))
        .prop_map(|(from, name, to, new, exchange)| Op::Rename { from, name, to, new, exchange })
}

fn xattr(small: bool) -> impl Strategy<Value = Op> {
    let most = if small { 60 } else { 900usize };
    prop_oneof![
        2 => (any::<u16>(), 0..3u8, 0..most, any::<u64>())
            .prop_map(|(file, name, len, fill)| Op::SetXattr { file, name, len, fill }),
        1 => (any::<u16>(), 0..3u8).prop_map(|(file, name)| Op::RemoveXattr { file, name }),
    ]
}

/// So many operations of all kinds. `small`: files have some hundred bytes at most, mostly.
pub(crate) fn ops(count: usize, small: bool) -> impl Strategy<Value = Vec<Op>> {
    list(op(small), count..=count)
}

fn op(small: bool) -> impl Strategy<Value = Op> {
    let any16 = any::<u16>;
    let allocate = (any16(), any::<u32>(), 1..=50_000usize)
        .prop_map(|(file, at, len)| Op::Allocate { file, at: Place::Behind(at, 20_000), len });
    let link =
        (any16(), any16(), 0..60u8).prop_map(|(file, dir, name)| Op::Link { file, dir, name });
    let unlink = (any16(), there(), weighted(1.0 / 3.0)).prop_map(|(dir, name, held)| Op::Unlink {
        dir,
        name,
        held,
    });
    prop_oneof![
        20 => (any16(), 0..60u8, new()).prop_map(|(dir, name, new)| Op::Make { dir, name, new }),
        4 => link,
        14 => unlink,
        4 => (any16(), there()).prop_map(|(dir, name)| Op::Rmdir { dir, name }),
        10 => rename(),
        26 => write(small),
        6 => truncate(small),
        6 => any16().prop_map(|file| Op::Read { file }),
        3 => xattr(small),
        2 => allocate,
        1 => any16().prop_map(|file| Op::Chmod { file }),
        1 => any16().prop_map(|file| Op::Fsync { file }),
        1 => Just(Op::Sync),
        2 => Just(Op::Sleep),
    ]
}
