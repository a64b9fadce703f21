//! Servers that are killed, and the check in the background by the next mount.

use crate::judges::{Scratch, unmount};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Makes, moves and removes files and directories for ever.
pub(crate) const WORK: &str = r#"
n=0
while :; do
    n=$((n + 1)); old=$((n - 1)); older=$((n - 2))
    mkdir -p a$n/sub b$n d/e/f$n
    for i in 1 2 3 4 5 6 7 8 9; do
        head -c $((i * 3000)) /dev/zero > a$n/$i; echo $i > a$n/sub/$i; echo $i > d/e/f$n/$i
    done
    mv a$n/sub b$n/; mv a$n/[1-5] b$n/
    rm -rf a$old b$older
    ln d/e/f$n/1 h$n; truncate -s 70000 d/e/f$n/2; head -c 590000 /dev/zero > big$n; : > big$old
    rm -f h$older big$older
    rm -rf d/e/f$older d/f$old
    mv d/e/f$n d/
done"#;

/// Work of users while the image is checked. A directory that was being moved may lose one of its
/// names between the listing and the reading.
pub(crate) const USE: &str = "
set -e
mkdir new; for i in 1 2 3 4 5 6 7 8 9; do head -c $((i * 9000)) /dev/zero > new/$i; done
find . -type f -exec cat {} + 2>&1 > /dev/null | { ! grep -v 'No such file' >&2; }
rm -rf a[1-3]* b[1-3]*; mkdir -p d; mv d moved; rm -rf moved/e new";

/// The server of a mount.
pub(crate) struct Server(pub(crate) Child);

impl Server {
    /// Mounts an image; messages go to a file.
    pub(crate) fn start(image: &str, at: &Path, options: &str, messages: &str) -> Self {
        let outside = fs::metadata(at).expect("mount point").dev();
        let server = Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["--json", "mount", "-f", image])
            .arg(at)
            .args(["-o", options])
            .stdout(Stdio::null())
            .stderr(File::create(messages).expect("messages"))
            .spawn()
            .expect("seekless mount");
        let mut server = Self(server);
        let start = Instant::now();
        while fs::metadata(at).is_ok_and(|seen| seen.dev() == outside) {
            let ended = server.0.try_wait().expect("server");
            assert!(ended.is_none(), "{}", fs::read_to_string(messages).unwrap_or_default());
            assert!(start.elapsed() < Duration::from_secs(60), "not mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    pub(crate) fn kill(mut self, at: &Path) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
        let detached = Command::new("umount").arg("-l").arg(at).status().expect("umount");
        assert!(detached.success());
    }

    pub(crate) fn end(mut self, at: &Path) {
        unmount(at).expect("umount");
        assert!(self.0.wait().expect("server").success(), "the mount ended with an error");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Works until the server has been killed; returns the files that were durable before. The program of
/// the shell begins in the root.
pub(crate) fn work_until_killed(
    image: &str,
    at: &Path,
    scratch: &Scratch,
    (seed, program): (u64, &str),
) -> Vec<u64> {
    let limits = "rw,softdep,cache=2M,max_softdeps=400";
    let server = Server::start(image, at, limits, &scratch.join("messages"));
    let mut work = Command::new("sh")
        .args(["-c", program])
        .current_dir(at)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh");
    let dir = at.to_path_buf();
    let durable = std::thread::spawn(move || {
        let mut durable = Vec::new();
        for number in 0.. {
            let kept = File::create(dir.join(format!("kept{number}"))).and_then(|mut file| {
                file.write_all(&number.to_string().into_bytes().repeat(500))?;
                file.sync_all()
            });
            match kept {
                Ok(()) => durable.push(number),
                Err(_) => return durable,
            }
        }
        unreachable!("there is room for one file less than there are numbers")
    });
    std::thread::sleep(Duration::from_millis(400 + seed * 7919 % 2600));
    server.kill(at);
    let group = format!("-{}", work.id());
    let _ = Command::new("kill").args(["-9", "--", &group]).status();
    work.wait().expect("wait");
    durable.join().expect("writer")
}

/// Waits for the result of the check in the background.
pub(crate) fn result(messages: &str) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let said = fs::read_to_string(messages).unwrap_or_default();
        let line = said.lines().find(|line| line.contains("background_check"));
        if let Some(found) = line.and_then(|line| serde_json::from_str(line).ok()) {
            let found: serde_json::Value = found;
            return found["background_check"].clone();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no result: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files that were durable before a kill, in a mount.
pub(crate) fn kept(at: &Path, durable: &[u64], what: &str) {
    for number in durable {
        let bytes = fs::read(at.join(format!("kept{number}"))).expect("a durable file");
        assert_eq!(bytes, number.to_string().into_bytes().repeat(500), "{what}");
    }
}

/// Kills a server while it works, uses the image at once, and unmounts it when it has been checked.
/// Returns how many files and inodes were released.
pub(crate) fn kill_and_use(image: &str, scratch: &Scratch, seed: u64, what: &str) -> u64 {
    let (at, messages) = (scratch.path().join("at"), scratch.join("messages"));
    fs::create_dir(&at).expect("mount point");
    let durable = work_until_killed(image, &at, scratch, (seed, WORK));
    let server = Server::start(image, &at, "rw,recover=background", &messages);
    let used = Command::new("sh").args(["-c", USE]).current_dir(&at).output().expect("sh");
    let said = String::from_utf8_lossy(&used.stderr).into_owned();
    let found = result(&messages);
    assert_eq!(found["sound"], true, "{what}: {found}");
    assert!(used.status.success(), "{what}: {said}");
    kept(&at, &durable, what);
    server.end(&at);
    found["files"].as_u64().unwrap_or(0) + found["inodes"].as_u64().unwrap_or(0)
}
