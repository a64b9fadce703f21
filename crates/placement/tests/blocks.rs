//! Block policies against the rules of `ffs_blkpref`.

use seekless_placement::block::{Hints, Request, Wanted, Zones, by_name};
use seekless_placement::{GroupSummary, Groups, Shape};
use seekless_units::{BlockNo, GroupNo, Lbn};

const NCG: u32 = 8;
const FPG: u64 = 10_000;

const ZONES: Zones =
    Zones { metaspace: 400, nindir: 2048, maxbpg: 1024, maxcontig: 4, rotdelay_frags: 0 };

fn shape() -> Shape {
    Shape { ncg: NCG, fpg: FPG as u32, frag: 8, size: u64::from(NCG) * FPG, ..Shape::default() }
}

/// Groups with `nbfree` free blocks; data begin behind 100 fragments.
fn groups(nbfree: impl Fn(u32) -> u32) -> Groups {
    let shape = shape();
    let mut groups = Groups::new(shape, |group| shape.base(group) + 100);
    for at in 0..NCG {
        let summary = GroupSummary { nbfree: nbfree(at), ..GroupSummary::default() };
        groups.set(GroupNo::new(at), summary);
    }
    groups
}

/// Groups 0, 3 and 6 have less than the average.
fn uneven() -> Groups {
    groups(|at| if at.is_multiple_of(3) { 10 } else { 500 })
}

fn request(lbn: u64, hints: Hints) -> Request<Hints> {
    Request {
        group: GroupNo::new(2),
        is_directory: false,
        lbn: Lbn::new(lbn),
        nearest: hints.nearest(),
        hints,
    }
}

fn hints(wanted: Wanted) -> Hints {
    Hints { wanted, last_direct: None, first_indirect: None }
}

fn data(lbn: u64, index: u64, previous: u64) -> Request<Hints> {
    let some = |block| (block != 0).then(|| BlockNo::new(block));
    let wanted = Wanted::Data { index, previous: some(previous), run_before: None };
    request(lbn, hints(wanted))
}

fn ask(policy: &str, zones: Zones, request: &Request<Hints>) -> Option<u64> {
    by_name(policy, zones, 1).unwrap().prefer(&uneven(), request).map(BlockNo::get)
}

const META: u64 = 2 * FPG + 100;
const DATA: u64 = META + 400;

#[test]
fn blkpref_of_today() {
    let indirect = |level, lbn, last_direct: Option<u64>| {
        let last_direct = last_direct.map(BlockNo::new);
        request(lbn, Hints { last_direct, ..hints(Wanted::Indirect(level)) })
    };
    let directory = Request { is_directory: true, ..data(0, 0, 0) };
    let behind = |at| {
        let first_indirect = Some(BlockNo::new(at));
        request(12, Hints { first_indirect, ..data(12, 0, 0).hints })
    };
    for (what, request, expected) in [
        ("a file begins in the data zone", data(0, 0, 0), DATA),
        ("a directory begins in the metadata zone", directory, META),
        ("a block follows the one before", data(5, 5, 24_000), 24_008),
        ("behind a hole", data(5, 5, 0), DATA),
        ("the first indirect block follows block 11", indirect(1, 12, Some(24_000)), 24_008),
        ("unless block 11 is a hole", indirect(1, 12, None), META),
        ("a double indirect block", indirect(2, 2060, Some(24_000)), META),
        ("a single one below it", indirect(1, 2060, Some(24_000)), META),
        ("block 12 follows the indirect block", behind(24_008), 24_016),
        ("not when that lies in the metadata zone", behind(META + 8), DATA),
        ("nor when it lies in another group", behind(FPG * 3 + 600), DATA),
        ("at maxbpg, still within the first indirect", data(1036, 1024, 24_000), DATA),
        // Group 3 has too little, so group 4 is next.
        ("at maxbpg, beyond it", data(3084, 1024, 24_000), 4 * FPG + 500),
        // Block 4108 is 4 shares in: group 2 + 4 has too little, so 7.
        ("behind a hole, beyond it", data(4108, 0, 0), 7 * FPG + 500),
        // The next after group 7 is 0, which has too little; 1 has enough.
        ("the sweep begins anew", data(3084, 1024, 7 * FPG), FPG + 500),
    ] {
        assert_eq!(ask("blkpref", ZONES, &request), Some(expected), "{what}");
    }
}

#[test]
fn blkpref_of_old() {
    let with_run = |index, previous, run: u64| {
        let wanted = Wanted::Data {
            index,
            previous: Some(BlockNo::new(previous)),
            run_before: Some(BlockNo::new(run)),
        };
        request(index, hints(wanted))
    };
    let indirect = request(12, hints(Wanted::Indirect(1)));
    for (what, request, expected) in [
        ("a file begins in its group", data(0, 0, 0), 2 * FPG + 8),
        ("a block follows the one before", data(5, 5, 24_000), 24_008),
        // Share 0 of group 2, which has enough.
        ("an indirect block", indirect, 2 * FPG + 8),
        ("behind the direct blocks", data(12, 0, 0), 2 * FPG + 8),
        ("at maxbpg", data(1036, 1024, 24_000), 4 * FPG + 8),
        ("four in a row", with_run(6, 24_024, 24_000), 24_032 + 16),
        ("not in a row", with_run(6, 24_024, 23_000), 24_032),
        ("not yet four", with_run(3, 24_024, 24_000), 24_032),
    ] {
        let zones = Zones { rotdelay_frags: 9, ..ZONES };
        assert_eq!(ask("old-blkpref", zones, &request), Some(expected), "{what}");
    }
}

#[test]
fn blkpref_of_the_bsds() {
    let indirect = |lbn| request(lbn, hints(Wanted::Indirect(1)));
    let directory = Request { is_directory: true, ..data(0, 0, 0) };
    let behind = Hints { first_indirect: Some(BlockNo::new(24_008)), ..data(12, 0, 0).hints };
    let begin = |group: u64| group * FPG + 8;
    for (what, request, expected) in [
        ("a file begins in its group", data(0, 0, 0), begin(2)),
        ("so does a directory", directory, begin(2)),
        ("a block follows the one before", data(5, 5, 24_000), 24_008),
        ("behind a hole", data(5, 5, 0), begin(2)),
        ("an indirect block", indirect(12), begin(2)),
        ("block 12 does not follow it", request(12, behind), begin(2)),
        ("at maxbpg, still within the first indirect", data(1036, 1024, 24_000), begin(2)),
        // Group 3 has too little, so group 4 is next.
        ("at maxbpg, beyond it", data(3084, 1024, 24_000), begin(4)),
        // Block 4108 is 4 shares in: group 2 + 4 has too little, so 7.
        ("behind a hole, beyond it", data(4108, 0, 0), begin(7)),
        // Block 2060 is 2 shares in.
        ("an indirect block beyond it", indirect(2060), begin(4)),
    ] {
        // No gaps, whatever the volume says.
        let zones = Zones { rotdelay_frags: 9, ..ZONES };
        assert_eq!(ask("bsd-blkpref", zones, &request), Some(expected), "{what}");
    }
}

#[test]
fn a_full_volume() {
    let full = groups(|_| 0);
    let beyond = data(3084, 1024, 24_000);
    let prefer = |policy: &str, request| by_name(policy, ZONES, 1).unwrap().prefer(&full, request);
    // Every group has the average.
    assert_eq!(prefer("blkpref", &beyond), Some(BlockNo::new(3 * FPG + 500)));
    assert_eq!(prefer("near-start", &data(0, 0, 0)), None);
}

/// The nearest block, which policies without hints use.
#[test]
fn the_nearest_block() {
    let (direct, indirect, before) = (BlockNo::new(800), BlockNo::new(808), BlockNo::new(1600));
    let nearest = |wanted, last_direct, first_indirect| {
        Hints { wanted, last_direct, first_indirect }.nearest()
    };
    let at = |index, previous| Wanted::Data { index, previous, run_before: None };
    let of_map = Wanted::Indirect(1);
    assert_eq!(nearest(of_map, Some(direct), Some(indirect)), Some(direct));
    assert_eq!(nearest(at(0, None), Some(direct), Some(indirect)), Some(indirect));
    assert_eq!(nearest(at(0, None), Some(direct), None), Some(direct));
    assert_eq!(nearest(at(5, Some(before)), Some(direct), Some(indirect)), Some(before));
    assert_eq!(nearest(at(5, None), Some(direct), Some(indirect)), None);
}

#[test]
fn plain_policies() {
    let (shape, groups) = (shape(), uneven());
    let (first, later) = (data(0, 0, 0), data(5, 5, 24_000));

    let mut next = by_name("next-free", ZONES, 1).unwrap();
    assert_eq!(next.prefer(&groups, &later), Some(BlockNo::new(100)));
    next.allocated(BlockNo::new(70_000));
    assert_eq!(next.prefer(&groups, &first), Some(BlockNo::new(70_008)));
    next.allocated(BlockNo::new(shape.size - 8));
    assert_eq!(next.prefer(&groups, &first), Some(BlockNo::new(100)));

    assert_eq!(ask("near-start", ZONES, &first), Some(100));
    assert_eq!(ask("near-start", ZONES, &later), Some(24_008));

    let mut random = by_name("random-start", ZONES, 1).unwrap();
    let starts: Vec<u64> =
        (0..200).map(|_| random.prefer(&groups, &first).unwrap().get()).collect();
    assert!(starts.iter().all(|at| at % 8 == 0 && *at < shape.size));
    for group in 0..u64::from(NCG) {
        let here = starts.iter().filter(|&&at| at / FPG == group).count();
        assert!((10..45).contains(&here), "{here} of 200 in group {group}");
    }
    assert_eq!(random.prefer(&groups, &later), Some(BlockNo::new(24_008)));
}
