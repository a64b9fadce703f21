//! Each directory policy beside an independent restatement of its rule, on
//! random volumes.

#[path = "../../fs/tests/shared/property.rs"]
mod property;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use seekless_placement::directory::{Expected, by_name};
use seekless_placement::inode::{InodePlace, NewInode, Parent};
use seekless_placement::{GroupSummary, Groups, Shape, Totals};
use seekless_units::GroupNo;
use std::cell::Cell;

#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    expected: Expected,
    groups: Vec<GroupSummary>,
    totals: Totals,
    contigdirs: Vec<u8>,
}

impl Case {
    /// The input of the policy.
    fn told(&self) -> Groups {
        let mut groups = Groups::new(self.shape, |group| self.shape.base(group));
        for (at, &summary) in self.groups.iter().enumerate() {
            groups.set(GroupNo::new(at as u32), summary);
        }
        groups
    }
}

/// A number below `of`, by its thousandths.
fn part(of: u64, thousandths: u64) -> u32 {
    (of * thousandths / 1000) as u32
}

/// A volume, from empty ones to full ones.
fn case() -> impl Strategy<Value = Case> {
    let expected = (select(vec![16384, 1024, 1 << 20, 0]), select(vec![64, 8, 1000, 0]));
    let expected = expected.prop_map(|(avgfilesize, avgfpdir)| Expected { avgfilesize, avgfpdir });
    let group = (0..1000u64, 0..1000u64, 0..1000u64, 0..90u8);
    let volume = (64..4064u32, 100..6100u32, expected, 0..100u64, vec(group, 1..=40));
    volume.prop_map(|(ipg, blocks, expected, full, parts)| {
        let (ncg, fpg) = (parts.len() as u32, (blocks + 50) * 8);
        let size = u64::from(ncg) * u64::from(fpg);
        let shape = Shape { ncg, ipg, fpg, fsize: 2048, frag: 8, size, skip: 0 };
        let group = |&(ndir, nbfree, nifree, _): &(u64, u64, u64, u8)| GroupSummary {
            ndir: part(u64::from(ipg) * (full + 1) / 400 + 3, ndir),
            nbfree: part(u64::from(blocks) * (101 - full) / 100 + 1, nbfree),
            nifree: part(u64::from(ipg) * (101 - full) / 100 + 1, nifree),
            nffree: 0,
        };
        let groups: Vec<GroupSummary> = parts.iter().map(group).collect();
        let totals = groups.iter().copied().collect();
        let contigdirs = parts.iter().map(|&(.., contigdirs)| contigdirs).collect();
        Case { shape, expected, groups, totals, contigdirs }
    })
}

fn below(parent: Parent) -> NewInode<'static> {
    NewInode { parent, name: b"new", hash: None, is_directory: true }
}

fn restated_old(case: &Case) -> u32 {
    let average = case.totals.nifree / u64::from(case.shape.ncg);
    let candidates = case
        .groups
        .iter()
        .enumerate()
        .filter(|(_, group)| u64::from(group.nifree) >= average && group.ndir < case.shape.ipg);
    candidates.min_by_key(|(at, group)| (group.ndir, *at)).map_or(0, |(at, _)| at as u32)
}

/// The scan for a directory that is not below the root, with floats and fractions in place of the
/// integers' order of operations where both agree.
fn restated_near(case: &Case, start: u32, more: u64) -> u32 {
    let (shape, expected) = (case.shape, case.expected);
    let ncg = u64::from(shape.ncg);
    let (ifree, bfree, dirs) =
        (case.totals.nifree / ncg, case.totals.nbfree / ncg, case.totals.ndir / ncg);
    let free_bytes = bfree * 16384;
    let current = (u64::from(shape.fpg) * 2048 - free_bytes).checked_div(dirs).unwrap_or(0);
    let dirsize = current.max(u64::from(expected.avgfilesize) * u64::from(expected.avgfpdir));
    let by_space = free_bytes.checked_div(dirsize).unwrap_or(0);
    let by_inodes = shape.ipg.checked_div(expected.avgfpdir).map_or(255, u64::from);
    let follow = [by_space, by_inodes, 255].into_iter().min().unwrap().max(1);
    let order: Vec<usize> = (0..shape.ncg).map(|by| ((start + by) % shape.ncg) as usize).collect();
    let three_quarters = |average: u64| ((average * 3).div_ceil(4)).max(1);
    for &at in &order {
        let group = case.groups[at];
        let room = u64::from(group.ndir) < (dirs + more).min(u64::from(shape.ipg))
            && u64::from(group.nifree) >= three_quarters(ifree)
            && u64::from(group.nbfree) >= three_quarters(bfree);
        if room && u64::from(case.contigdirs[at]) < follow {
            return at as u32;
        }
    }
    for &at in &order {
        if u64::from(case.groups[at].nifree) >= ifree {
            return at as u32;
        }
    }
    start
}

/// The location of the n-th directory, by enumerating the fractions.
fn restated_probe(ncg: u32, group: u32, depth: u32, subdirectories: u32) -> u32 {
    let range = u64::from(ncg) / 2u64.pow(depth);
    let mut fractions = Vec::new();
    let mut parts = 2u64;
    while fractions.len() <= subdirectories as usize {
        fractions.extend((1..parts).step_by(2).map(|odd| range * odd / parts));
        parts *= 2;
    }
    let within = fractions[subdirectories as usize];
    let at = i64::from(group) - (range / 2) as i64 + within as i64;
    at.rem_euclid(i64::from(ncg)) as u32
}

#[test]
fn policies_agree_with_their_rules() {
    let (moved, all) = (Cell::new(0), Cell::new(0));
    let input = (case(), any::<u32>(), 1..=5u32, 0..50u32);
    property::for_all(3000, input, |(case, group, depth, subdirectories)| {
        let ncg = case.shape.ncg;
        let groups = case.told();
        let group = group % ncg;
        let at = InodePlace { group: GroupNo::new(group), slot: 5 };
        let parent = Parent { at, is_root: false, depth, subdirectories, last: None };
        let ask = |name: &str, parent: &Parent| {
            let mut policy = by_name(name, ncg, case.expected, 3).unwrap();
            for (at, &count) in case.contigdirs.iter().enumerate() {
                (0..count).for_each(|_| policy.allocated(GroupNo::new(at as u32), true));
            }
            policy.prefer(&groups, &below(*parent)).get()
        };
        assert_eq!(ask("old-dirpref", &parent), restated_old(&case));
        let near = restated_near(&case, group, u64::from(case.shape.ipg / 16));
        assert_eq!(ask("orlov", &parent), near);
        moved.update(|count| count + u32::from(near != group));
        all.update(|count| count + 1);
        let start = restated_probe(ncg, group, depth, subdirectories);
        let deep = restated_near(&case, start, 2u64.pow(depth));
        assert_eq!(ask("depth", &parent), deep);
        let unknown = Parent { depth: 0, ..parent };
        let plain = restated_near(&case, group, 1);
        assert_eq!(ask("depth", &unknown), plain);
    });
    let (moved, all) = (moved.get(), all.get());
    let range = all / 10..all - all / 10;
    assert!(range.contains(&moved), "{moved} of {all} moved: the cases are one-sided");
}

/// Below the root Orlov's rule takes a group with the fewest directories among those with the
/// average of inodes and of blocks; the choice among several is random.
#[test]
fn the_first_level_is_spread() {
    let (several, spread) = (Cell::new(0), Cell::new(0));
    property::for_all(1000, case(), |case| {
        let ncg = u64::from(case.shape.ncg);
        let groups = case.told();
        let at = InodePlace { group: GroupNo::ZERO, slot: 2 };
        let parent = Parent { at, is_root: true, depth: 0, subdirectories: 0, last: None };
        let ask = |seed| {
            let policy = by_name("orlov", case.shape.ncg, case.expected, seed);
            policy.unwrap().prefer(&groups, &below(parent))
        };
        let enough = |group: &&GroupSummary| {
            u64::from(group.nifree) >= case.totals.nifree / ncg
                && u64::from(group.nbfree) >= case.totals.nbfree / ncg
        };
        let fewest = case.groups.iter().filter(enough).map(|group| group.ndir).min();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let chosen = ask(seed);
            assert_eq!(chosen, ask(seed));
            let group = case.groups[chosen.get() as usize];
            if let Some(fewest) = fewest.filter(|&fewest| fewest < case.shape.ipg) {
                assert!(enough(&&group) && group.ndir == fewest, "{group:?}");
            }
            seen.insert(chosen);
        }
        let alike = case.groups.iter().filter(enough).filter(|g| Some(g.ndir) == fewest).count();
        several.update(|count| count + u32::from(alike > 1));
        spread.update(|count| count + u32::from(alike > 1 && seen.len() > 1));
    });
    let (several, spread) = (several.get(), spread.get());
    assert!(several > 20 && spread > several * 3 / 4, "{spread} of {several} are spread");
}
