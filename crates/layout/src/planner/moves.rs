//! Which touched blocks leave their places in an older layout, so that a trace reads fewer pieces.
//!
//! The touched blocks, in order of first touch, lie in pieces: each begins where its blocks do not
//! follow those before it. Blocks that move lie behind one another, so that a boundary between two
//! pieces goes if both move. The most boundaries go for the blocks that may move by a choice that
//! maximizes, for a price of a block, boundaries less prices (Lagrange's multiplier); the price is
//! the lowest at which the blocks stay within the budget.

use super::base::Held;
use super::sequence::Touched;
use super::{Touch, objects};
use seekless_fs::plan::{Base, Demand, ObjectId, Placed, Plan, Run, Space};
use seekless_units::{BlockNo, Extent};
use std::collections::BTreeSet;

/// The worth of a boundary, in units of the price of a block.
const WORTH: u64 = 1 << 20;

/// The gain and the price of moving blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// Blocks of the older layout that move.
    pub blocks: u64,
    /// Pieces in which the touched blocks lie if none moves.
    pub pieces_before: u64,
    runs: Vec<(ObjectId, Run)>,
}

impl Moves {
    /// How many chunks of `align` blocks contain the moved blocks.
    #[must_use]
    pub fn chunks(&self, plan: &Plan, align: u64) -> u64 {
        let mut chunks = BTreeSet::new();
        for &(object, run) in &self.runs {
            for placed in plan.data(object) {
                let from = placed.lbn.max(run.lbn);
                let end = (placed.lbn + placed.extent.len).min(run.lbn + run.len);
                if from < end {
                    let start = placed.extent.start.get() + (from - placed.lbn);
                    chunks.extend(start / align..(start + (end - from)).div_ceil(align));
                }
            }
        }
        chunks.len() as u64
    }
}

/// Pieces in which the touched blocks lie in a plan.
#[must_use]
pub fn pieces_of(plan: &Plan, demand: &dyn Demand, hot: &[Touch]) -> u64 {
    pieces(demand, |object| plan.data(object), hot).len() as u64
}

/// Touched blocks that lie together.
struct Piece {
    /// Blocks that have a place, all or none.
    blocks: u64,
    parts: Vec<(ObjectId, Run)>,
    /// The end of its blocks; `None` for blocks without a place, which are placed with those that
    /// move.
    end: Option<BlockNo>,
}

/// The older layout without the places of some of the touched blocks: at most `budget` blocks, which
/// [`plan_on`](super::plan_on) then places in the order of the touches.
#[must_use]
pub fn move_touched(
    base: Base,
    demand: &dyn Demand,
    space: &Space,
    hot: &[Touch],
    budget: u64,
) -> (Base, Moves) {
    let held = Held::new(demand, space, &base);
    let pieces = pieces(demand, |object| held.data(object), hot);
    let chosen = choose(&pieces, budget);
    let none = vec![false; pieces.len()];
    let mut moved = Touched::default();
    let mut moves = Moves { pieces_before: count(&pieces, &none), ..Moves::default() };
    for (piece, _) in pieces.iter().zip(&chosen).filter(|&(_, &chosen)| chosen) {
        moves.blocks += piece.blocks;
        for &(object, run) in &piece.parts {
            moved.add(object, run.lbn.get(), run.lbn.get() + run.len, &mut Vec::new());
            if piece.end.is_some() {
                moves.runs.push((object, run));
            }
        }
    }
    (without(base, demand, &moved), moves)
}

/// The pieces of the touched blocks, in order of first touch; `places` are those of an object,
/// sorted by logical block.
fn pieces<'a>(
    demand: &dyn Demand,
    places: impl Fn(ObjectId) -> &'a [Placed],
    hot: &[Touch],
) -> Vec<Piece> {
    let mut steps = Vec::new();
    Touched::default().add_all(demand, hot, &mut steps);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut add = |object, run: Run, start: Option<BlockNo>| {
        let end = start.map(|start| start + run.len);
        let blocks = if start.is_some() { run.len } else { 0 };
        match pieces.last_mut() {
            Some(last) if last.end == start => {
                last.blocks += blocks;
                last.parts.push((object, run));
                last.end = end;
            }
            _ => pieces.push(Piece { blocks, parts: vec![(object, run)], end }),
        }
    };
    for step in steps {
        let (mut at, end) = (step.run.lbn, step.run.lbn + step.run.len);
        let data = places(step.object);
        let first = data.partition_point(|placed| placed.lbn + placed.extent.len <= at);
        for placed in &data[first..] {
            let (from, to) = (placed.lbn.max(at), (placed.lbn + placed.extent.len).min(end));
            if from >= to {
                break;
            }
            if from > at {
                add(step.object, Run { lbn: at, len: from - at }, None);
            }
            let start = placed.extent.start + (from - placed.lbn);
            add(step.object, Run { lbn: from, len: to - from }, Some(start));
            at = to;
        }
        if at < end {
            add(step.object, Run { lbn: at, len: end - at }, None);
        }
    }
    pieces
}

/// Pieces that are left if the chosen ones, and those without a place, lie behind one another.
fn count(pieces: &[Piece], chosen: &[bool]) -> u64 {
    let moves: Vec<bool> =
        pieces.iter().zip(chosen).map(|(piece, &chosen)| chosen || piece.end.is_none()).collect();
    let joins = moves.windows(2).filter(|pair| pair[0] && pair[1]).count();
    (pieces.len() - joins) as u64
}

/// Chooses pieces of at most `budget` blocks.
fn choose(pieces: &[Piece], budget: u64) -> Vec<bool> {
    let blocks = |chosen: &[bool]| -> u64 {
        pieces.iter().zip(chosen).filter(|pair| *pair.1).map(|pair| pair.0.blocks).sum()
    };
    // At twice the worth of a boundary no block moves.
    let (mut low, mut high) = (0, 2 * WORTH);
    let mut best = vec![false; pieces.len()];
    while low <= high {
        let price = u64::midpoint(low, high);
        let chosen = at_price(pieces, price);
        if blocks(&chosen) <= budget {
            best = chosen;
            if price == 0 {
                break;
            }
            high = price - 1;
        } else {
            low = price + 1;
        }
    }
    best
}

/// The choice that maximizes the worth of the boundaries that go, less `price` for each block.
fn at_price(pieces: &[Piece], price: u64) -> Vec<bool> {
    // For each piece the choice before it that is better, if it stays and if it moves.
    let mut before: Vec<[bool; 2]> = Vec::with_capacity(pieces.len());
    let mut worth = [0i128, i128::MIN / 2];
    for piece in pieces {
        let [stays, moves] = worth;
        let joined = moves + i128::from(WORTH);
        // Of equal ones, that in which fewer blocks move.
        let from = [moves > stays, joined > stays];
        let own = i128::from(piece.blocks) * i128::from(price);
        // Blocks without a place move in any case.
        let kept = if piece.end.is_none() { i128::MIN / 2 } else { stays.max(moves) };
        worth = [kept, stays.max(joined) - own];
        before.push(from);
    }
    let mut chosen = vec![false; pieces.len()];
    let mut moves = worth[1] > worth[0];
    for (at, from) in before.iter().enumerate().rev() {
        chosen[at] = moves;
        moves = from[usize::from(moves)];
    }
    chosen
}

/// A base in which marked blocks have no place.
fn without(base: Base, demand: &dyn Demand, moved: &Touched) -> Base {
    let mut plan = Plan::default();
    for object in objects(demand).take(base.plan.inodes.len()) {
        let mut stays = Vec::new();
        for placed in base.plan.data(object) {
            let run = Run { lbn: placed.lbn, len: placed.extent.len };
            moved.rest(object, run, |part| {
                let start = placed.extent.start + (part.lbn - placed.lbn);
                stays.push(Placed { lbn: part.lbn, extent: Extent::new(start, part.len) });
            });
        }
        let overhead = base.plan.overhead_extents(object).iter().copied();
        plan.push(base.plan.inodes[object.index()], stays, overhead);
    }
    Base { plan, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(blocks: u64) -> Piece {
        let end = (blocks > 0).then(|| BlockNo::new(blocks));
        Piece { blocks, parts: Vec::new(), end }
    }

    fn blocks_of(pieces: &[Piece], chosen: &[bool]) -> u64 {
        pieces.iter().zip(chosen).filter(|pair| *pair.1).map(|pair| pair.0.blocks).sum()
    }

    /// No other choice of as few blocks leaves fewer pieces.
    #[test]
    fn no_choice_of_as_few_blocks_is_better() {
        let mut state = 7u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let mut gains = 0;
        for _ in 0..300 {
            let pieces: Vec<Piece> = (0..1 + random(9)).map(|_| piece(random(12))).collect();
            let budget = random(60);
            let chosen = choose(&pieces, budget);
            let (paid, left) = (blocks_of(&pieces, &chosen), count(&pieces, &chosen));
            assert!(paid <= budget);
            for set in 0..1u32 << pieces.len() {
                let other: Vec<bool> = (0..pieces.len()).map(|at| set >> at & 1 == 1).collect();
                let is_better = count(&pieces, &other) < left;
                assert!(!is_better || blocks_of(&pieces, &other) > paid, "{chosen:?} {other:?}");
            }
            gains += count(&pieces, &vec![false; pieces.len()]) - left;
        }
        assert!(gains > 300, "{gains} boundaries in all");
    }

    #[test]
    fn with_room_for_all_one_piece_is_left_and_without_none_moves() {
        let pieces: Vec<Piece> = [5, 1, 0, 70, 3].map(piece).into();
        assert_eq!(choose(&pieces, 79), [true; 5]);
        assert_eq!(count(&pieces, &[true; 5]), 1);
        assert_eq!(choose(&pieces, 0), [false, false, true, false, false]);
        // The one large piece stays where it is.
        assert_eq!(choose(&pieces, 78), [true, true, true, false, false]);
        assert_eq!(choose(&[], 10), Vec::<bool>::new());
    }
}
