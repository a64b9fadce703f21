//! Configuration of the two tools that build an initramfs.

use super::PROGRAM;
use seekless_host::tracefs::EARLY;

/// A line that identifies every file written here.
pub(crate) const MARK: &str =
    "# Written by `seekless record --install-boot`; `--remove-boot` removes it.";

/// The tool that builds the initramfs of a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// Debian's initramfs-tools
    InitramfsTools,
    /// dracut
    Dracut,
}

impl Tool {
    pub(crate) const ALL: [Self; 2] = [Self::InitramfsTools, Self::Dracut];

    /// Name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InitramfsTools => "initramfs-tools",
            Self::Dracut => "dracut",
        }
    }

    /// Files that exist if it is installed, in no other package.
    pub(crate) const fn signs(self) -> &'static [&'static str] {
        match self {
            Self::InitramfsTools => &["usr/share/initramfs-tools/hook-functions"],
            Self::Dracut => {
                &["usr/lib/dracut/dracut-functions.sh", "usr/lib/dracut/dracut-init.sh"]
            }
        }
    }

    /// The program that rebuilds the initramfs, with all its possible paths, and its arguments, for
    /// every installed kernel.
    pub(crate) const fn rebuild(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::InitramfsTools => {
                (&["usr/sbin/update-initramfs", "sbin/update-initramfs"], &["-u", "-k", "all"])
            }
            Self::Dracut => {
                (&["usr/bin/dracut", "usr/sbin/dracut", "sbin/dracut"], &["-f", "--regenerate-all"])
            }
        }
    }

    /// The scripts: their paths and contents. `options` are those of the recorder, quoted for the
    /// shell, each after a blank.
    pub(crate) fn scripts(self, options: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::InitramfsTools => vec![
                ("etc/initramfs-tools/hooks/seekless", initramfs_tools_hook()),
                ("etc/initramfs-tools/scripts/init-top/seekless", early(PREREQUISITES)),
                ("etc/initramfs-tools/scripts/init-bottom/seekless", init_bottom(options)),
            ],
            Self::Dracut => vec![
                ("usr/lib/dracut/modules.d/90seekless/module-setup.sh", dracut_module()),
                ("usr/lib/dracut/modules.d/90seekless/early.sh", early("")),
                ("usr/lib/dracut/modules.d/90seekless/record.sh", pre_pivot(options)),
            ],
        }
    }
}

/// initramfs-tools(7): a hook copies into the initramfs.
fn initramfs_tools_hook() -> String {
    format!(
        "#!/bin/sh
{MARK}
# Copies the recorder into the initramfs.
case \"$1\" in prereqs) exit 0;; esac
. /usr/share/initramfs-tools/hook-functions
copy_exec /{PROGRAM} /{PROGRAM}
"
    )
}

/// Mount point of the kernel's tracing.
const TRACING: &str = "/sys/kernel/tracing";

/// initramfs-tools(7): every script must answer the query for its prerequisites.
const PREREQUISITES: &str = "case \"$1\" in prereqs) exit 0;; esac\n";

/// Run before udev searches for labels: from here on requests to block devices are recorded for the
/// recorder, which starts when the root is mounted. dracut(8) sources it, so it must not exit.
fn early(first: &str) -> String {
    format!(
        "#!/bin/sh
{MARK}
# Takes what is asked of block devices before the recorder starts.
{first}[ -d {TRACING}/instances ] || mount -t tracefs tracefs {TRACING} || :
if mkdir {TRACING}/instances/{EARLY}; then
    echo mono >{TRACING}/instances/{EARLY}/trace_clock
    echo 1024 >{TRACING}/instances/{EARLY}/buffer_size_kb
    echo 1 >{TRACING}/instances/{EARLY}/events/block/block_bio_queue/enable
fi 2>/dev/null || :
"
    )
}

/// initramfs-tools(7): run when the root is mounted, before it is switched.
fn init_bottom(options: &str) -> String {
    format!(
        "#!/bin/sh
{MARK}
# Starts the recorder. A boot goes on without it where it fails.
{PREREQUISITES}/{PROGRAM} record --boot --mount \"$rootmnt\"{options}
rmdir {TRACING}/instances/{EARLY} 2>/dev/null
exit 0
"
    )
}

/// dracut.modules(7): the files to copy, and the hook that runs the script.
fn dracut_module() -> String {
    format!(
        "#!/bin/bash
{MARK}
# Copies the recorder into the initramfs.
check() {{
    return 0
}}

depends() {{
    return 0
}}

install() {{
    inst /{PROGRAM}
    inst_hook pre-udev 05 \"$moddir/early.sh\"
    inst_hook pre-pivot 90 \"$moddir/record.sh\"
}}
"
    )
}

/// dracut.bootup(7): run when the root is mounted, before it is switched. It is sourced, so it must
/// not exit.
fn pre_pivot(options: &str) -> String {
    format!(
        "#!/bin/sh
{MARK}
# Starts the recorder. A boot goes on without it where it fails.
/{PROGRAM} record --boot --mount \"$NEWROOT\"{options} || :
rmdir {TRACING}/instances/{EARLY} 2>/dev/null || :
"
    )
}
