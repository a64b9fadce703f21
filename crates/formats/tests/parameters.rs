//! Parameters of mounts and repairs.

use seekless_formats::{Argument, FORMATS, Parameter, Value};

#[test]
fn a_value_is_checked_by_its_kind() {
    let check = |value, text: Option<&str>| {
        let parameter = Parameter { name: "p", value, help: "" };
        parameter.check(&Argument::new("p", text)).err()
    };
    assert_eq!(check(Value::Flag, None), None);
    assert_eq!(check(Value::Flag, Some("1")).as_deref(), Some("takes no value"));
    let number = Value::Number { name: "N", least: -1, most: 3 };
    for (text, why) in [("3", None), ("-1", None), ("4", Some("-1 to 3 is valid"))] {
        assert_eq!(check(number, Some(text)).as_deref(), why, "{text}");
    }
    assert_eq!(check(number, Some("x")).as_deref(), Some("invalid number"));
    assert_eq!(check(number, None).as_deref(), Some("expected p=N"));
    let optional = Value::OptionalText { name: "FILE" };
    assert_eq!((check(optional, None), check(optional, Some("x"))), (None, None));
    assert_eq!(check(optional, Some("")).as_deref(), Some("expected p[=FILE]"));
    assert_eq!(Parameter { name: "p", value: optional, help: "" }.to_string(), "p[=FILE]");
    let words = Value::OneOf(&["keep", "free"]);
    assert_eq!(check(words, Some("keep")), None);
    assert_eq!(check(words, Some("kep")).as_deref(), Some("expected keep, free"));
    assert_eq!(check(words, None).as_deref(), Some("expected p=keep|free"));
}

/// A name has one value in all formats, so that an argument is valid before the format is
/// known, or in none; and no format names a parameter twice.
#[test]
fn a_name_means_one_thing() {
    let all: Vec<&Parameter> = FORMATS.iter().flat_map(|known| known.mount_parameters).collect();
    for one in &all {
        for other in all.iter().filter(|other| other.name == one.name) {
            assert_eq!(one.to_string(), other.to_string());
        }
    }
    for known in FORMATS {
        for parameters in [known.mount_parameters, known.repair_parameters] {
            let mut names: Vec<_> = parameters.iter().map(|it| it.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), parameters.len(), "{}", known.family);
        }
    }
}

#[test]
fn each_is_in_the_documentation() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    let read = |name: &str| std::fs::read_to_string(format!("{docs}{name}")).expect("docs");
    let (mount, check) = (read("mount.md"), read("check.md"));
    for known in FORMATS {
        for parameter in known.mount_parameters {
            let name = parameter.name;
            let named = [format!("| `{name}"), format!(", `{name}")];
            assert!(named.iter().any(|it| mount.contains(it)), "docs/mount.md: {name}");
        }
        for parameter in known.repair_parameters {
            assert!(check.contains(&format!("--{}", parameter.name)), "docs/check.md");
        }
    }
}
