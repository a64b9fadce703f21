use super::*;
use std::io::Cursor;

fn id(ino: u32) -> FileId {
    FileId { ino, generation: 7 }
}

fn files(range: std::ops::Range<u32>) -> Vec<FileId> {
    range.map(id).collect()
}

fn whole(_: FileId) -> Option<Vec<(u32, u32)>> {
    Some(Vec::new())
}

/// A run of these files at a moment.
fn run(habits: &mut Habits, now: Seconds, files: &[FileId]) -> Filed {
    files.iter().for_each(|file| habits.opened(now, 1, "tool", *file));
    let mut due = habits.due(now + habits.rules().gap + 1);
    assert_eq!(due.len(), 1);
    habits.file(now + 10, due.remove(0), &mut whole)
}

#[test]
fn episodes_end_when_it_is_quiet() {
    let mut habits = Habits::new(Rules::default());
    for at in 0..5 {
        habits.opened(100 + at, 1, "a", id(20 + at as u32));
        habits.opened(100 + at, 2, "b", id(20));
    }
    habits.opened(112, 2, "x", id(21));
    assert!(habits.due(114).is_empty());
    let due = habits.due(115);
    assert_eq!(due, [Episode { program: "a".into(), files: files(20..25) }]);
    let due = habits.due(123);
    assert_eq!(due, [Episode { program: "b".into(), files: files(20..22) }]);
}

#[test]
fn a_source_that_never_rests_is_cut() {
    let mut habits = Habits::new(Rules { longest: 60, ..Rules::default() });
    let mut ended = 0;
    for now in 0..200 {
        habits.opened(now, 1, "server", id(now as u32));
        ended += habits.due(now).len();
    }
    assert_eq!(ended, 3);
}

#[test]
fn what_opens_too_much_is_a_scan() {
    let rules = Rules { most_files: 50, most_open: 60, ..Rules::default() };
    let mut habits = Habits::new(rules);
    files(0..51).iter().for_each(|file| habits.opened(5, 1, "backup", *file));
    assert!(habits.due(100).is_empty());
    // Several that are too much together: the largest goes.
    files(0..40).iter().for_each(|file| habits.opened(200, 1, "large", *file));
    files(0..21).iter().for_each(|file| habits.opened(200, 2, "small", *file));
    let due = habits.due(300);
    assert_eq!(due, [Episode { program: "small".into(), files: files(0..21) }]);
}

#[test]
fn runs_that_are_alike_are_one_habit() {
    let mut habits = Habits::new(Rules::default());
    assert_eq!(run(&mut habits, 1000, &files(0..20)), Filed::New(1));
    // A third of both together.
    assert_eq!(run(&mut habits, 2000, &files(10..30)), Filed::New(2));
    // 16 of 24.
    assert_eq!(run(&mut habits, 3000, &files(4..24)), Filed::Joined(1));
    assert_eq!(run(&mut habits, 4000, &files(3..23)), Filed::Joined(1));
    assert_eq!(run(&mut habits, 5000, &files(40..43)), Filed::Small);
    let habit = habits.habit(1).unwrap();
    assert_eq!((habit.runs, habit.core()), (3, files(3..23)));
}

#[test]
fn a_run_counts_half_after_the_half_life() {
    let mut habits = Habits::new(Rules::default());
    run(&mut habits, 0, &files(0..9));
    run(&mut habits, 7 * DAY, &files(0..9));
    let weight = |habits: &Habits, now| habits.habits()[0].weight(now, 7 * DAY);
    assert!((weight(&habits, 7 * DAY + 10) - 1.5).abs() < 0.001);
    assert!((weight(&habits, 21 * DAY + 10) - 0.375).abs() < 0.001);
    assert!(weight(&habits, 0) <= weight(&habits, 7 * DAY), "a clock that goes backwards");
    // Forgotten when others come.
    run(&mut habits, 80 * DAY, &files(100..109));
    assert_eq!(habits.habits().len(), 1);
    assert_eq!(habits.size(), (9, 9));
}

#[test]
fn memory_is_bounded_and_the_lightest_goes_first() {
    let rules = Rules { most_habits: 10, most_entries: 400, ..Rules::default() };
    let mut habits = Habits::new(rules);
    for at in 0..3 {
        run(&mut habits, 1000 * at, &files(0..20));
    }
    for at in 0..100u32 {
        run(&mut habits, 10_000 + u64::from(at), &files(1000 + at * 30..1030 + at * 30));
        let (entries, known) = habits.size();
        assert!(habits.habits().len() <= 10 && entries <= 400 && known <= 800, "{known}");
    }
    assert_eq!(habits.habit(1).map(|habit| habit.runs), Some(3), "the habit is still known");
}

fn established(habits: &mut Habits, now: Seconds, of: &[FileId]) {
    (0..3).for_each(|at| assert_ne!(run(habits, now + at * 1000, of), Filed::Small));
}

const NONE: Estimate = Estimate { before: 40.0, after: 2.0, bytes: 1 << 20 };

#[test]
fn only_what_weighs_enough_is_proposed_and_only_once() {
    let mut habits = Habits::new(Rules::default());
    run(&mut habits, 0, &files(0..9));
    run(&mut habits, 1000, &files(0..9));
    assert_eq!(habits.propose(2000, 0.5, &mut Round::new()), Err(Wait::Nothing));
    run(&mut habits, 3000, &files(0..9));
    assert!(habits.is_anything_due(4000, &Round::new()));
    let proposal = habits.propose(4000, 0.5, &mut Round::new()).unwrap();
    assert_eq!((proposal.habit, &proposal.lay), (1, &files(0..9)));
    assert!(!habits.is_anything_due(4000, &Round::new()));
    assert_eq!(habits.propose(4000, 0.5, &mut Round::new()), Err(Wait::Nothing), "looked at");
    let mut round = Round::by_hand();
    assert!(habits.propose(4000, 0.5, &mut round).is_ok(), "by hand");
    assert_eq!(habits.propose(4000, 0.5, &mut round), Err(Wait::Nothing), "in the same round");
    assert!(habits.propose(4000 + 2 * DAY, 0.5, &mut Round::new()).is_ok(), "the next day");
    assert_eq!(habits.propose(9 * DAY, 0.95, &mut Round::by_hand()), Err(Wait::Full(0.95)));
}

#[test]
fn a_plan_pays_by_the_runs_to_be_expected() {
    let mut habits = Habits::new(Rules::default());
    established(&mut habits, 0, &files(0..9));
    let pays = |before, after, mib: u64, now| {
        habits.pays(now, 1, &Estimate { before, after, bytes: mib << 20 })
    };
    assert!(pays(40.0, 10.0, 80, 3000), "90 seeks for 80 MiB");
    assert!(!pays(40.0, 10.0, 95, 3000));
    assert!(!pays(40.0, 10.0, 80, 8 * DAY), "half as many are expected a week later");
    assert!(!pays(4.0, 2.0, 1, 3000), "too few seeks");
    assert!(!pays(40.0, 33.0, 1, 3000), "too small a part of them");
    assert!(!pays(40.0, 10.0, 0, 3000), "nothing moves");
}

#[test]
fn no_more_than_the_budget_of_a_day() {
    let mut habits = Habits::new(Rules { budget: 10 << 20, ..Rules::default() });
    established(&mut habits, DAY, &files(0..9));
    let now = DAY + 5000;
    let proposal = habits.propose(now, 0.0, &mut Round::new()).unwrap();
    assert_eq!(proposal.budget, 10 << 20);
    let done = Estimate { bytes: 4 << 20, ..NONE };
    habits.moved(now, &proposal, &done, true, Vec::new());
    let proposal = habits.propose(now + 1, 0.0, &mut Round::new()).expect("the rest of it");
    assert_eq!(proposal.budget, 6 << 20);
    habits.spent_in_vain(now, &proposal, 6 << 20);
    assert_eq!(habits.propose(now + 2, 0.0, &mut Round::by_hand()), Err(Wait::Budget));
    assert_eq!(habits.budget_left(now - DAY), 0, "a clock that goes backwards");
    assert_eq!(habits.propose(2 * DAY, 0.0, &mut Round::new()).unwrap().budget, 10 << 20);
}

#[test]
fn files_of_habits_that_lie_well_stay() {
    let mut habits = Habits::new(Rules::default());
    established(&mut habits, 0, &files(0..20));
    let first = habits.propose(4000, 0.0, &mut Round::new()).unwrap();
    habits.moved(4000, &first, &NONE, false, Vec::new());
    established(&mut habits, 5000, &files(14..40));
    let second = habits.propose(9000, 0.0, &mut Round::new()).unwrap();
    assert_eq!(second.lay, files(20..40));
    assert_eq!(second.protect, files(0..20).into_iter().collect());
    habits.moved(9000, &second, &NONE, false, Vec::new());
    assert_eq!(habits.habit(1).unwrap().laid.as_ref().unwrap().files, files(0..20));
    // A habit used twice as often takes them.
    for at in 0..6 {
        run(&mut habits, 10_000 + at * 100, &files(14..40));
    }
    let again = habits.propose(2 * DAY, 0.0, &mut Round::new()).unwrap();
    assert_eq!((again.habit, again.lay.len()), (2, 26));
    habits.moved(2 * DAY, &again, &NONE, false, Vec::new());
    assert_eq!(habits.habit(1).unwrap().laid.as_ref().unwrap().files, files(0..14));
}

#[test]
fn pages_are_added_to_files_that_were_looked_at() {
    let mut habits = Habits::new(Rules::default());
    let episode = || Episode { program: "tool".into(), files: files(20..24) };
    habits.add_pages(id(20), &[(0, 9)]);
    habits.file(100, episode(), &mut |_| Some(vec![(0, 4)]));
    // They are not looked at again so soon.
    habits.file(101, episode(), &mut |_| Some(vec![(8, 12)]));
    assert_eq!(habits.facts[&id(20)].pages, [(0, 4)]);
    habits.add_pages(id(20), &[(8, 12)]);
    assert_eq!(habits.facts[&id(20)].pages, [(0, 4), (8, 12)]);
}

#[test]
fn pages_of_a_file_are_joined() {
    let mut facts = Facts { pages: vec![(0, 4), (10, 20)], looked: 0 };
    facts.join(&[(4, 8), (15, 30)]);
    assert_eq!(facts.pages, [(0, 8), (10, 30)]);
    let many: Vec<(u32, u32)> = (0..20).map(|at| (100 * at, 100 * at + 50 + at)).collect();
    facts.join(&many);
    assert_eq!(facts.pages.len(), MOST_RANGES);
    assert!(facts.pages.windows(2).all(|pair| pair[0].1 < pair[1].0));
    // The nearest are joined: gaps of 1 to 20, of which the widest stay.
    let mut facts = Facts { pages: vec![(0, 1)], looked: 0 };
    let mut at = 0;
    let apart: Vec<(u32, u32)> = (1..=20)
        .map(|gap| {
            at += 1 + gap;
            (at, at + 1)
        })
        .collect();
    facts.join(&apart);
    assert_eq!(facts.pages[0], (0, apart[12].1));
    assert_eq!(facts.pages[1..], apart[13..]);
    facts.join(&[]);
    assert!(facts.pages.is_empty(), "all of it");
}

#[test]
fn the_machine_must_have_been_idle_for_a_while() {
    let rules = IdleRules::default();
    let quiet = MachineState {
        io_pressure: Some(0.5),
        cpu_pressure: Some(3.0),
        load: 9.0,
        ..MachineState::default()
    };
    let mut idle = Idle::default();
    assert_eq!(idle.observe(0, &quiet, &rules), Err(Busy::Quiet(120)));
    assert_eq!(idle.observe(100, &quiet, &rules), Err(Busy::Quiet(20)));
    assert_eq!(idle.observe(120, &quiet, &rules), Ok(()));
    let busy = MachineState { io_pressure: Some(30.0), ..quiet };
    assert_eq!(idle.observe(130, &busy, &rules), Err(Busy::Io(30.0)));
    assert_eq!(idle.observe(140, &quiet, &rules), Err(Busy::Quiet(120)));
    let states = [
        (MachineState { cpu_pressure: Some(50.0), ..quiet }, Busy::Cpu(50.0)),
        (MachineState { io_pressure: None, ..quiet }, Busy::Load(9.0)),
        (MachineState { opens: 50.0, ..quiet }, Busy::Opens(50.0)),
        (MachineState { on_battery: true, ..quiet }, Busy::Battery),
    ];
    for (state, why) in states {
        assert_eq!(Idle::default().observe(0, &state, &rules), Err(why));
    }
}

fn some() -> Habits {
    let mut habits = Habits::new(Rules::default());
    established(&mut habits, 0, &files(0..20));
    established(&mut habits, 100, &files(50..3000));
    let proposal = habits.propose(4000, 0.0, &mut Round::new()).unwrap();
    habits.moved(4000, &proposal, &NONE, true, vec![(8, 2), (100, 1)]);
    habits
}

fn written(habits: &Habits) -> Vec<u8> {
    let mut text = Vec::new();
    write(habits, "volume", 5000, &mut text).unwrap();
    text
}

#[test]
fn a_state_is_read_as_it_was_written() {
    let habits = some();
    let text = written(&habits);
    let (again, saved) = read(Rules::default(), &mut Cursor::new(&text)).unwrap();
    assert_eq!(saved, 5000);
    assert_eq!((again.habits(), again.moves()), (habits.habits(), habits.moves()));
    assert_eq!((&again.facts, again.budget), (&habits.facts, habits.budget));
    assert_eq!(written(&again), text);
}

#[test]
fn a_damaged_state_is_an_error_with_its_line() {
    let text = written(&some());
    let of = |text: &[u8]| read(Rules::default(), &mut Cursor::new(text)).map(drop);
    let newlines: Vec<usize> = (0..text.len()).filter(|at| text[*at] == b'\n').collect();
    for end in [0, 1, newlines[0], newlines[0] + 1, newlines[2] + 9, text.len() - 1] {
        let line = newlines.iter().filter(|at| **at < end).count() as u64 + 1;
        match of(&text[..end]) {
            Err(StateError::Cut(at)) => assert_eq!(at, line),
            other => panic!("{end}: {other:?}"),
        }
    }
    // Every byte counts.
    for at in (0..text.len() - 1).step_by(499) {
        let mut damaged = text.clone();
        damaged[at] ^= 1;
        of(&damaged).expect_err("a byte is another one");
    }
    let other = |from: &str, to: &str| {
        let text = String::from_utf8(text.clone()).unwrap();
        of(text.replacen(from, to, 1).as_bytes()).expect_err("not as written").to_string()
    };
    assert!(other("watch\":1", "watch\":9").contains("version 9"));
    assert!(other("seekless_watch", "seekless_trace").starts_with("line 1: "));
    assert!(other("\"runs\"", "\"walks\"").starts_with("line 2: "));
    assert!(other("\"number\":2", "\"number\":1").contains("line 3: habit 1 is there twice"));
}

#[test]
fn a_trace_reads_what_is_used() {
    let mut habits = Habits::new(Rules::default());
    files(0..4).iter().for_each(|file| habits.opened(0, 1, "tool", *file));
    let episode = habits.due(99).remove(0);
    let mut look = |file: FileId| match file.ino {
        0 => Some(Vec::new()),
        1 => Some(vec![(2, 4), (9, 10)]),
        _ => Some(vec![(0, 1)]),
    };
    assert_eq!(habits.file(99, episode, &mut look), Filed::New(1));
    let mut path = |file: FileId| (file.ino != 2).then(|| format!("/f{}", file.ino).into_bytes());
    let events = habits.trace(&files(0..4), &mut path);
    let shown: Vec<_> = events
        .iter()
        .map(|event| (String::from_utf8_lossy(&event.path), event.offset, event.length))
        .collect();
    let expected = [
        ("/f0", 0, None),
        ("/f1", 8192, Some(8192)),
        ("/f1", 36_864, Some(4096)),
        ("/f3", 0, Some(4096)),
    ];
    assert_eq!(shown, expected.map(|(path, from, len)| (path.into(), from, len)));
}
