//! Archives compressed with xz in all its forms, and some that request too much memory.

use flate2::Crc;
use seekless_fs::FsError;
use seekless_fs::source::Source;
use seekless_source::{OpenOptions, manifest, open};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A directory with an archive that has a compressible and an incompressible part.
fn archive() -> TempDir {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut noise = 1u64;
    let mut next = || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    };
    fs::write(temp.path().join("noise"), (0..300_000).map(|_| next()).collect::<Vec<u8>>())
        .unwrap();
    fs::write(temp.path().join("text"), "a line\n".repeat(50_000)).unwrap();
    shell(temp.path(), "tar -cf archive noise text");
    temp
}

fn shell(dir: &Path, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

fn listing(path: &Path) -> Result<String, FsError> {
    let source = open(path, &OpenOptions::default())?;
    let mut out = Vec::new();
    manifest::write(source.as_ref() as &dyn Source, &mut out, &|_| {})?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn all_forms_are_read() {
    let temp = archive();
    let wanted = listing(&temp.path().join("archive")).unwrap();
    let packed = temp.path().join("packed");
    for script in [
        "xz -0 -c archive > packed",
        "xz -9 -T1 -c archive > packed",
        "xz -T2 --block-size=100000 -c archive > packed",
        "xz --check=none -c archive > packed",
        "xz --check=crc32 -c archive > packed",
        "xz --check=sha256 --block-size=65536 -c archive > packed",
        "xz --x86 --lzma2=preset=6 -c archive > packed",
        "xz --delta=dist=4 --lzma2=dict=4KiB -c archive > packed",
        "(head -c 100001 archive | xz -c; head -c 8 /dev/zero; tail -c +100002 archive | xz -c) > packed",
        "(xz -c archive; printf '' | xz -c; head -c 4 /dev/zero) > packed",
    ] {
        shell(temp.path(), script);
        assert_eq!(listing(&packed).unwrap(), wanted, "{script}");
        // A truncated or changed file is read or refused, and needs no more memory.
        let whole = fs::read(&packed).unwrap();
        for nth in 1..20 {
            let at = whole.len() * nth / 20;
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            for bytes in [&whole[..at], &changed] {
                fs::write(&packed, bytes).unwrap();
                if let Err(error) = listing(&packed) {
                    let is_told = matches!(error, FsError::Archive { .. });
                    assert!(is_told, "{script}: {at}: {error}");
                }
            }
        }
    }
}

/// Makes the header of a block at `at` request the largest dictionary.
fn with_large_dictionary(bytes: &mut [u8], at: usize) {
    let len = (usize::from(bytes[at]) + 1) * 4;
    let header = &mut bytes[at..at + len];
    let filter = header.windows(2).position(|pair| pair == [0x21, 1]).unwrap();
    header[filter + 2] = 40;
    let mut crc = Crc::new();
    crc.update(&header[..len - 4]);
    header[len - 4..].copy_from_slice(&crc.sum().to_le_bytes());
}

#[test]
fn dictionaries_that_need_too_much_memory_are_refused() {
    let temp = archive();
    let packed = temp.path().join("packed");
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&packed, bytes).unwrap();
        let error = listing(&packed).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, FsError::Refused(_)), "{what}: {text}");
        assert!(text.contains("4294967295 bytes") && text.contains("xz -dc"), "{what}: {text}");
    };
    // xz itself reports the same with that limit.
    shell(temp.path(), "xz -c archive > packed");
    let mut bytes = fs::read(&packed).unwrap();
    with_large_dictionary(&mut bytes, 12);
    refused(&bytes, "the first block");
    let mut xz = Command::new("xz");
    xz.args(["-dc", "--memlimit=1GiB"]).stdin(fs::File::open(&packed).unwrap());
    let said = xz.output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("limit"), "{said:?}");

    let first = bytes.len();
    shell(temp.path(), "(xz -c archive; xz -c archive) > packed");
    let mut bytes = fs::read(&packed).unwrap();
    with_large_dictionary(&mut bytes, first + 12);
    refused(&bytes, "the second stream");

    // Blocks with their lengths in their headers.
    shell(temp.path(), "xz -T2 --block-size=200000 -c archive > packed");
    let mut bytes = fs::read(&packed).unwrap();
    let header = (usize::from(bytes[12]) + 1) * 4;
    let (mut len, mut shift) = (0, 0);
    for &byte in &bytes[14..] {
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let second = 12 + header + len.next_multiple_of(4) + 8;
    with_large_dictionary(&mut bytes, second);
    refused(&bytes, "the second block");
}

/// They are refused as unsupported, not as damaged.
#[test]
fn unknown_filters_are_unsupported() {
    let temp = archive();
    let packed = temp.path().join("packed");
    for (script, known) in [("xz --delta=dist=4 --lzma2", 3), ("xz", 0x21)] {
        shell(temp.path(), &format!("{script} -c archive > packed"));
        let mut bytes = fs::read(&packed).unwrap();
        let len = (usize::from(bytes[12]) + 1) * 4;
        let header = &mut bytes[12..12 + len];
        let filter = header[2..].iter().position(|&byte| byte == known).unwrap() + 2;
        header[filter] = 0x3c;
        let mut crc = Crc::new();
        crc.update(&header[..len - 4]);
        header[len - 4..].copy_from_slice(&crc.sum().to_le_bytes());
        fs::write(&packed, &bytes).unwrap();
        let error = listing(&packed).unwrap_err();
        assert!(matches!(error, FsError::Refused(_)), "{script}: {error}");
    }
}

#[test]
fn an_index_of_more_blocks_than_there_are_is_refused() {
    let temp = archive();
    let packed = temp.path().join("packed");
    shell(temp.path(), "printf '' | xz -c > packed");
    let mut bytes = fs::read(&packed).unwrap();
    // The number of records, after the header and the index indicator.
    bytes.splice(13..14, [0xff, 0xff, 0xff, 0xff, 0x7f]);
    fs::write(&packed, &bytes).unwrap();
    let error = listing(&packed).unwrap_err();
    assert!(error.to_string().contains("records of other blocks"), "{error}");
}
