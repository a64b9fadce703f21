//! Files, variables and related pages of a command, for its manual page.

/// What belongs to a command besides its options.
pub(super) struct Related {
    command: Option<&'static Entry>,
    is_root: bool,
    /// The page of the command above.
    above: Option<String>,
}

/// A name and its meaning.
type Meaning = (&'static str, &'static str);

struct Entry {
    /// The name of the command; those below it share the entry.
    command: &'static str,
    /// Other pages.
    pages: &'static [&'static str],
    files: &'static [Meaning],
    variables: &'static [Meaning],
}

const EPOCH: Meaning = (
    "SOURCE_DATE_EPOCH",
    "Creation time of the file system, in seconds since 1970; for build, also the latest time that a \
     file may have.",
);
const TMPDIR: Meaning = (
    "TMPDIR",
    "Directory for archives that are unpacked and images for standard output [default: /var/tmp]",
);

const CACHE_HOME: Meaning = (
    "XDG_CACHE_HOME",
    "Directory of caches, in which seekless/images has the images of registries [default: ~/.cache]",
);
const AUTH_FILE: Meaning =
    ("REGISTRY_AUTH_FILE", "File of credentials for registries, in place of those below.");
const CERT_FILE: Meaning =
    ("SSL_CERT_FILE", "Certificates that registries are believed by, in place of the system's.");
const PROXY: Meaning = (
    "HTTPS_PROXY",
    "Proxy on the way to registries; so are HTTP_PROXY and ALL_PROXY. NO_PROXY lists hosts that need none.",
);
const REGISTRY_FILES: &[Meaning] = &[
    (
        "$XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json, ~/.docker/config.json",
        "Credentials for registries, of which the first that has some counts; $XDG_CONFIG_HOME and \
         $DOCKER_CONFIG replace the directories.",
    ),
    (
        "/etc/containers/certs.d/HOST/*.crt, /etc/docker/certs.d/HOST/*.crt",
        "Further certificates that a registry is believed by.",
    ),
    (
        "~/.cache/seekless/images",
        "Images of registries, an OCI image layout. It may be removed when no command reads it.",
    ),
];

const ENTRIES: &[Entry] = &[
    Entry {
        command: "build",
        pages: &[
            "seekless-formats(5)",
            "seekless-manifest(1)",
            "seekless-mkfs(1)",
            "seekless-optimize(1)",
            "genext2fs(8)",
            "mke2fs(8)",
            "mkfs.fat(8)",
            "selabel_file(5)",
            "skopeo(1)",
        ],
        files: REGISTRY_FILES,
        variables: &[EPOCH, TMPDIR, CACHE_HOME, AUTH_FILE, CERT_FILE, PROXY],
    },
    Entry {
        command: "mkfs",
        pages: &["seekless-build(1)", "mkfs.fat(8)"],
        files: &[],
        variables: &[EPOCH],
    },
    Entry {
        command: "generate",
        pages: &["man(1)"],
        files: &[],
        variables: &[("SOURCE_DATE_EPOCH", "Date of the pages, in seconds since 1970.")],
    },
    Entry {
        command: "manifest",
        pages: &["seekless-build(1)", "seekless-compare(1)", "seekless-formats(5)"],
        files: REGISTRY_FILES,
        variables: &[TMPDIR, CACHE_HOME, AUTH_FILE, CERT_FILE, PROXY],
    },
    Entry {
        command: "optimize",
        pages: &[
            "seekless-build(1)",
            "seekless-record(1)",
            "seekless-relayout(1)",
            "seekless-score(1)",
            "seekless-formats(5)",
        ],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "layout",
        pages: &["seekless-build(1)", "seekless-formats(5)"],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "check",
        pages: &["seekless-mount(1)", "e2fsck(8)", "fsck.fat(8)"],
        files: &[],
        variables: &[(
            "E2FSPROGS_UNDO_DIR",
            "Directory of undo files, for a file of which no path is given.",
        )],
    },
    Entry {
        command: "mount",
        pages: &["seekless-check(1)", "seekless-record(1)", "fusermount3(1)", "mount(8)"],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "record",
        pages: &["seekless-optimize(1)", "seekless-trace(1)", "seekless-formats(5)"],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "trace",
        pages: &["seekless-record(1)", "seekless-score(1)", "seekless-formats(5)"],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "score",
        pages: &[
            "seekless-map(1)",
            "seekless-model(1)",
            "seekless-trace(1)",
            "seekless-formats(5)",
        ],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "map",
        pages: &["seekless-score(1)", "seekless-formats(5)"],
        files: &[],
        variables: &[("NO_COLOR", "If it is not empty, maps in a terminal have no colours.")],
    },
    Entry {
        command: "prefetch",
        pages: &["seekless-trace(1)", "seekless-formats(5)"],
        files: &[],
        variables: &[],
    },
    Entry {
        command: "watch",
        pages: &["seekless-relayout(1)", "systemd.service(5)"],
        files: &[
            ("/etc/seekless/watch.toml", "The configuration, if no other file is given."),
            ("/var/lib/seekless", "What was learnt of each file system."),
        ],
        variables: &[],
    },
    Entry {
        command: "tune",
        pages: &["seekless-mkfs(1)", "seekless-info(1)"],
        files: &[],
        variables: &[],
    },
];

/// Exit codes of `check`: those of fsck(8).
const FSCK: &[Meaning] = &[
    ("0", "no errors"),
    ("1", "errors were repaired"),
    ("4", "errors were left as they are"),
    ("8", "it could not be checked"),
    ("16", "wrong arguments"),
];

impl Related {
    /// What belongs to the command with these names.
    pub(super) fn to(path: &[&str]) -> Self {
        let name = path.get(1).copied().unwrap_or_default();
        let above = path.split_last().map(|(_, above)| above.join("-"));
        Self {
            command: ENTRIES.iter().find(|entry| entry.command == name),
            is_root: path.len() == 1,
            above: above.filter(|above| !above.is_empty()),
        }
    }

    /// Pages, the one of the command above first.
    pub(super) fn pages(&self) -> Vec<String> {
        let above = self.above.iter().map(|above| format!("{above}(1)"));
        let own = self.command.into_iter().flat_map(|entry| entry.pages).map(ToString::to_string);
        let formats = self.is_root.then(|| "seekless-formats(5)".to_string());
        above.chain(own).chain(formats).collect()
    }

    pub(super) fn files(&self) -> &'static [Meaning] {
        self.command.map_or(&[], |entry| entry.files)
    }

    pub(super) fn variables(&self) -> &'static [Meaning] {
        match self.command {
            Some(entry) => entry.variables,
            None if self.is_root => &[EPOCH, TMPDIR],
            None => &[],
        }
    }

    /// Exit codes other than those of most commands.
    pub(super) fn codes(&self) -> Option<&'static [Meaning]> {
        self.command.filter(|entry| entry.command == "check").map(|_| FSCK)
    }
}
