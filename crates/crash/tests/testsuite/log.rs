//! Logs in the format of dm-log-writes: by hand, back and forth, and hostile.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_crash::dm_log_writes::{LogError, read, write};
use seekless_crash::{Log, Step};
use seekless_device::MemoryDevice;
use seekless_units::{ByteLen, Lba};
use std::path::Path;

const LIMIT: ByteLen = ByteLen::new(1 << 20);

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A sector of `size` bytes that begins so.
fn sector(size: usize, start: &[u8]) -> Vec<u8> {
    let mut sector = start.to_vec();
    sector.resize(size, 0);
    sector
}

/// A log put together as the kernel's source says, in sectors of 4,096 bytes.
fn by_hand() -> Vec<u8> {
    let size = 4096;
    let mut log = sector(size, &words(&[0x006a_7366_7773_6872, 1, 5, 4096]));
    log.extend(sector(size, &words(&[3, 2, 0, 0])));
    log.extend(vec![7; 2 * size]);
    log.extend(sector(size, &words(&[0, 0, 1, 0])));
    let mut mark = words(&[0, 0, 8, 5]);
    mark.extend(b"hello");
    log.extend(sector(size, &mark));
    log.extend(sector(size, &words(&[100, 50, 4, 0])));
    // A flush with data that goes through the cache.
    log.extend(sector(size, &words(&[9, 1, 3, 0])));
    log.extend(vec![8; size]);
    log
}

fn parse(bytes: Vec<u8>) -> Result<Log, LogError> {
    read(&MemoryDevice::new(bytes), LIMIT)
}

#[test]
fn a_log_of_the_kernels_is_read() {
    let log = parse(by_hand()).unwrap();
    let write = |at: u64, fill: u8, sectors: usize, fua: bool| Step::Write {
        at: Lba::new(at),
        bytes: vec![fill; sectors * 512].into(),
        fua,
    };
    let steps = vec![
        write(24, 7, 16, false),
        Step::Flush,
        Step::Mark("hello".into()),
        Step::Discard { at: Lba::new(800), sectors: 400 },
        Step::Flush,
        write(72, 8, 8, true),
    ];
    assert_eq!(log, Log::new(steps));
    assert_eq!(log.behind_mark("hello"), Some(3));
    assert_eq!(log.epochs(0).len(), 3);
    assert_eq!(log.reach(), ByteLen::new(80 * 512));
}

#[test]
fn what_is_written_reads_the_same() {
    let log = parse(by_hand()).unwrap();
    let mut bytes = Vec::new();
    write(&log, &mut bytes).unwrap();
    assert_eq!(parse(bytes).unwrap(), log);
    let part = Step::Write { at: Lba::ZERO, bytes: vec![1; 100].into(), fua: false };
    assert!(write(&Log::new(vec![part]), &mut Vec::new()).is_err());
}

#[test]
fn damage_is_named() {
    let with = |at: usize, word: u64| {
        let mut bytes = by_hand();
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        parse(bytes).unwrap_err()
    };
    assert!(matches!(parse(Vec::new()), Err(LogError::Magic)));
    assert!(matches!(parse(vec![0; 4096]), Err(LogError::Magic)));
    assert!(matches!(with(8, 2), LogError::Version(2)));
    assert!(matches!(with(24, 0), LogError::SectorSize(0)));
    assert!(matches!(with(24, 3 << 9), LogError::SectorSize(_)));
    assert!(matches!(with(16, u64::MAX), LogError::Truncated { entry: 5 }));
    assert!(matches!(with(4096 + 8, 1 << 40), LogError::TooLarge { entry: 0, .. }));
    assert!(matches!(with(4096 + 8, 1 << 10), LogError::Memory { entry: 0, .. }));
    assert!(matches!(with(4096, u64::MAX), LogError::Range { entry: 0, .. }));
    assert!(matches!(with(4096 + 8, u64::MAX), LogError::Range { entry: 0, .. }));
    let mut short = by_hand();
    short.truncate(short.len() - 1);
    assert!(matches!(parse(short), Err(LogError::Truncated { entry: 4 })));
}

/// Anything is read or refused, and what is read is no longer than what there is.
fn survives(bytes: Vec<u8>) {
    let len = bytes.len();
    if let Ok(log) = parse(bytes) {
        assert!(log.steps.len() * 256 <= len, "{} steps in {len} bytes", log.steps.len());
        let mut again = Vec::new();
        write(&log, &mut again).unwrap();
        assert_eq!(without_marks(parse(again).unwrap()), without_marks(log));
    }
}

/// Marks of larger sectors are cut, and bytes that are no text do not come back.
fn without_marks(mut log: Log) -> Log {
    log.steps.retain(|step| !matches!(step, Step::Mark(_)));
    log
}

#[test]
fn hostile_logs_are_read_or_refused() {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    for _ in 0..20_000 {
        let mut bytes = by_hand();
        for _ in 0..rng.next_u64() % 6 + 1 {
            // The sectors that say something.
            let entry = [0, 4096, 16384, 20480, 24576, 28672][(rng.next_u64() % 6) as usize];
            let at = entry + (rng.next_u64() % 40) as usize;
            bytes[at] = [0, 1, 0xFF, rng.next_u64() as u8][(rng.next_u64() % 4) as usize];
        }
        bytes.truncate(bytes.len() - (rng.next_u64() % 3 * 1000) as usize);
        survives(bytes);
    }
}

#[test]
fn the_corpus_is_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/crash_log");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        survives(std::fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files > 10, "{files} files");
}

/// The kernel's target logs a write when it has completed.
#[test]
fn a_log_of_the_kernels_has_writes_where_they_have_completed() {
    let bytes = |fill: u8| vec![fill; 512].into();
    let submit = |at: u64| Step::Submit { at: Lba::new(at), bytes: bytes(at as u8), fua: at == 2 };
    let steps = vec![
        submit(1),
        submit(2),
        submit(3),
        Step::Complete { submit: 1 },
        Step::Flush,
        Step::Complete { submit: 0 },
    ];
    let mut written = Vec::new();
    write(&Log::new(steps), &mut written).unwrap();
    let device = MemoryDevice::new(written);
    let log = read(&device, ByteLen::new(1 << 20)).unwrap();
    let there = |at: u64| Step::Write { at: Lba::new(at), bytes: bytes(at as u8), fua: at == 2 };
    assert_eq!(log.steps, [there(2), Step::Flush, there(1)]);
}
