//! The touches of replays, in the order in which the planner places them.

use crate::replay::{Purpose, Replayed};
use crate::timing;
use seekless_fs::plan::{ObjectId, Run};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lbn, Nanos};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Something that a trace touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The object it belongs to.
    pub object: ObjectId,
    /// Which part.
    pub part: Part,
}

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The inode.
    Inode,
    /// Blocks of its map or of its attributes.
    Overhead,
    /// Blocks of its contents.
    Blocks(Run),
}

/// The most recordings of a program that are compared with each other.
const COMPARED: usize = 8;

/// The most blocks of a recording that is compared: each is a number in memory.
const MOST_BLOCKS: u64 = 1 << 20;

/// The disk on which they are compared, and the size of a block.
const DISK: &str = "sata-7200";
const BLOCK: ByteLen = ByteLen::new(4096);

/// The touches of replays, as the planner takes them: those common to several come first, then the
/// order of first touch. `object` finds an inode's object; blocks are counted in units of `unit`
/// file-system blocks.
///
/// Replays of which half of the objects are the same are of one program. No two runs of a program
/// with several threads or processes have the same order; of three or more, the one comes first on
/// whose order a disk reads the others in the least time (the medoid; Kaufman and Rousseeuw, "Finding
/// Groups in Data", 1990).
#[must_use]
pub fn touches<'a>(
    replays: impl IntoIterator<Item = &'a Replayed>,
    object: &dyn Fn(Ino) -> Option<ObjectId>,
    unit: u64,
) -> Vec<Touch> {
    let lists: Vec<Vec<Touch>> =
        replays.into_iter().map(|replay| of_replay(replay, object, unit)).collect();
    let objects: Vec<Vec<ObjectId>> = lists.iter().map(|list| objects_of(list)).collect();
    let mut users: HashMap<ObjectId, usize> = HashMap::new();
    for &object in objects.iter().flatten() {
        *users.entry(object).or_default() += 1;
    }
    let mut touches = Vec::with_capacity(lists.iter().map(Vec::len).sum());
    let users_first = |touches: &mut Vec<Touch>| {
        touches.sort_by_key(|touch| Reverse(users[&touch.object]));
    };
    for program in programs(&objects) {
        let of_program: Vec<&[Touch]> = program.iter().map(|&at| lists[at].as_slice()).collect();
        touches.extend(best_order(&of_program, &users_first));
    }
    users_first(&mut touches);
    touches
}

/// The touches of a replay, in order.
fn of_replay(replay: &Replayed, object: &dyn Fn(Ino) -> Option<ObjectId>, unit: u64) -> Vec<Touch> {
    let inodes = replay.inodes.iter().filter_map(|&ino| object(ino));
    let mut touches: Vec<Touch> =
        inodes.map(|object| Touch { object, part: Part::Inode }).collect();
    for request in &replay.requests {
        let Some(object) = object(request.ino) else { continue };
        let part = match request.purpose {
            // Blocks of no file have a fixed place.
            Purpose::Inode | Purpose::Device => continue,
            Purpose::Map | Purpose::Attribute => Part::Overhead,
            Purpose::Directory | Purpose::Data => {
                let first = request.lbn.get() / unit;
                let end = (request.lbn.get() + request.extent.len).div_ceil(unit);
                Part::Blocks(Run { lbn: Lbn::new(first), len: end - first })
            }
        };
        touches.push(Touch { object, part });
    }
    touches
}

/// The objects that are touched, sorted.
fn objects_of(touches: &[Touch]) -> Vec<ObjectId> {
    let mut objects: Vec<ObjectId> = touches.iter().map(|touch| touch.object).collect();
    objects.sort_unstable();
    objects.dedup();
    objects
}

/// The indices of the replays of each program, by the sorted objects that they touch. A replay is of
/// the first program that shares with its first replay half of the objects of both.
fn programs(objects: &[Vec<ObjectId>]) -> Vec<Vec<usize>> {
    let mut programs: Vec<Vec<usize>> = Vec::new();
    for (at, own) in objects.iter().enumerate() {
        let same = programs.iter_mut().find(|program| {
            let first = &objects[program[0]];
            let common = own.iter().filter(|object| first.binary_search(object).is_ok()).count();
            common > 0 && common * 2 >= own.len() + first.len() - common
        });
        match same {
            Some(program) => program.push(at),
            None => programs.push(vec![at]),
        }
    }
    programs
}

/// The touches of a program's lists: those of one list first, then those of the others in their
/// order. Of three lists or more, the first one is that on whose order a disk reads the others in the
/// least time. Two cannot tell which of them is the exception, and recordings of more than 4 GiB in
/// blocks of 4 KiB are not compared: the first one is taken.
fn best_order(lists: &[&[Touch]], users_first: &dyn Fn(&mut Vec<Touch>)) -> Vec<Touch> {
    let beginning_with = |first: usize| {
        let others = lists.iter().enumerate().filter(|(at, _)| *at != first);
        let others = others.flat_map(|(_, list)| list.iter().copied());
        lists[first].iter().copied().chain(others).collect::<Vec<Touch>>()
    };
    let compared = lists.len().min(COMPARED);
    let is_large = |list: &&[Touch]| list.iter().map(block_count).sum::<u64>() > MOST_BLOCKS;
    if compared < 3 || lists.iter().any(is_large) {
        return beginning_with(0);
    }
    let time = |first: &usize| {
        let mut order = beginning_with(*first);
        users_first(&mut order);
        let places: HashMap<Block, u64> = first_touches(&order).into_iter().zip(0..).collect();
        let others = lists[..compared].iter().enumerate().filter(|(at, _)| at != first);
        others.map(|(_, list)| read_time(&places, list).get()).sum::<u64>()
    };
    beginning_with((0..compared).min_by_key(time).expect("there are three at least"))
}

/// A block of an object.
type Block = (ObjectId, u64);

fn block_count(touch: &Touch) -> u64 {
    match touch.part {
        Part::Blocks(run) => run.len,
        Part::Inode | Part::Overhead => 0,
    }
}

/// The blocks of a touch.
fn blocks(touch: &Touch) -> impl Iterator<Item = Block> + use<> {
    let run = match touch.part {
        Part::Blocks(run) => run.lbn.get()..run.lbn.get() + run.len,
        Part::Inode | Part::Overhead => 0..0,
    };
    let object = touch.object;
    run.map(move |lbn| (object, lbn))
}

/// The blocks of touches in the order of first touch.
fn first_touches(touches: &[Touch]) -> Vec<Block> {
    let mut seen = HashSet::new();
    touches.iter().flat_map(blocks).filter(|&block| seen.insert(block)).collect()
}

/// The time in which a disk reads the blocks of touches at their places, each once, one request after
/// the other.
fn read_time(places: &HashMap<Block, u64>, touches: &[Touch]) -> Nanos {
    let mut seen = HashSet::new();
    let mut requests: Vec<Extent> = Vec::new();
    for touch in touches {
        let mut last: Option<Extent> = None;
        for block in blocks(touch).filter(|&block| seen.insert(block)) {
            let at = BlockNo::new(places[&block]);
            match &mut last {
                Some(last) if last.end() == at => last.len += 1,
                _ => requests.extend(last.replace(Extent::new(at, 1))),
            }
        }
        requests.extend(last);
    }
    let mut disk = seekless_model::preset(DISK).expect("a preset");
    let timing = timing::in_order(disk.as_mut(), requests, BLOCK);
    timing.expect("a disk is larger than the blocks of a trace").total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Request;

    /// Reads of whole files that no buffer of a disk has room for.
    fn replayed(files: &[u32]) -> Replayed {
        let request = |&ino: &u32| Request {
            extent: Extent::new(BlockNo::new(u64::from(ino) * 10_000), 10_000),
            purpose: Purpose::Data,
            ino: Ino::new(ino),
            lbn: Lbn::ZERO,
            event: 0,
        };
        Replayed { requests: files.iter().map(request).collect(), ..Replayed::default() }
    }

    /// The files in the order of their first touches.
    fn order(replays: &[Replayed]) -> Vec<usize> {
        let touches = touches(replays, &|ino| Some(ObjectId::new(ino.get())), 1);
        let mut seen = HashSet::new();
        let files = touches.iter().map(|touch| touch.object.index());
        files.filter(|&file| seen.insert(file)).collect()
    }

    #[test]
    fn the_recording_that_fits_the_others_best_comes_first() {
        let exception = replayed(&[6, 5, 4, 3, 2, 1]);
        let middle = replayed(&[1, 2, 3, 4, 5, 6]);
        let near = [replayed(&[1, 2, 3, 5, 4, 6]), replayed(&[2, 1, 3, 4, 5, 6])];
        let [one, two] = near;
        let all = [exception, one, middle, two];
        assert_eq!(order(&all), [1, 2, 3, 4, 5, 6]);
        // Among equals the first one, and of two the first one.
        assert_eq!(order(&[all[1].clone(), all[1].clone(), all[2].clone()]), [1, 2, 3, 5, 4, 6]);
        assert_eq!(order(&all[..2]), [6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn recordings_of_different_programs_keep_their_order() {
        let one = [&[1, 2, 3, 4][..], &[4, 3, 2, 1], &[3, 4, 1, 2]].map(replayed);
        let other = replayed(&[9, 8, 7]);
        assert_eq!(order(&[other.clone(), one[0].clone()]), [9, 8, 7, 1, 2, 3, 4]);
        // A program's recordings need not follow each other.
        let [a, b, c] = one;
        let first = order(&[a.clone(), b.clone(), c.clone()]);
        assert_eq!(order(&[a, other, b, c]), [first, vec![9, 8, 7]].concat());
    }
}
