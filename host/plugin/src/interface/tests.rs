use super::*;

fn interface(imports: &[&str], exports: &[&str]) -> Interface {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Interface { imports: owned(imports), exports: owned(exports), types_alone: BTreeSet::new() }
}

fn all() -> Grants {
    Grants {
        clocks: true,
        random: true,
        metrics: true,
        http: Some(crate::HttpGrant::new(Vec::new())),
        ..Grants::default()
    }
}

#[test]
fn the_form_follows_from_the_exports() {
    let contract = |exports: &[&str]| interface(&[], exports).contract();
    let found = |form, hooks| Ok(Contract { abi: Abi::V0_1, form, hooks });
    assert_eq!(contract(&["shardmill:processor/batch@0.1.0"]), found(Form::Rows, false));
    assert_eq!(contract(&["shardmill:processor/columnar@0.1.7", "wasi:cli/run@0.2.0"]), found(Form::Columnar, false));
    let both = ["shardmill:processor/hooks@0.1.0", "shardmill:processor/batch@0.1.0"];
    assert_eq!(contract(&both), found(Form::Rows, true));
    let hooks_alone = contract(&["shardmill:processor/hooks@0.1.0"]);
    assert_eq!(hooks_alone, Err(NoContract::OtherWorld));
    for version in ["0.2.0", "1.1.0", "0.1.0-rc.1", "0.1"] {
        let export = format!("shardmill:processor/batch@{version}");
        assert_eq!(contract(&[&export]), Err(NoContract::OtherVersion(export.clone())));
    }
}

#[test]
fn what_a_standard_library_imports_is_there_without_a_grant() {
    let imports = [
        "shardmill:processor/types@0.1.0",
        "shardmill:processor/logging@0.1.0",
        "wasi:cli/environment@0.2.6",
        "wasi:cli/terminal-stdout@0.2.6",
        "wasi:io/streams@0.2.0",
        "wasi:filesystem/preopens@0.2.3",
        "wasi:random/insecure-seed@0.2.6",
    ];
    let interface = interface(&imports, &[]);
    assert_eq!(interface.not_granted("flights", &Grants::default()), Vec::<String>::new());
    assert_eq!(interface.never_granted(), Vec::<String>::new());
    assert_eq!(interface.needs(), BTreeSet::new());
}

#[test]
fn everything_else_needs_its_grant_and_the_line_that_gives_it_is_told() {
    for (import, need, line) in [
        ("wasi:clocks/wall-clock@0.2.6", Need::Clocks, "clocks = true"),
        ("wasi:clocks/monotonic-clock@0.2.12", Need::Clocks, "clocks = true"),
        ("wasi:random/random@0.2.0", Need::Random, "random = true"),
        ("wasi:random/insecure@0.2.0", Need::Random, "random = true"),
        ("wasi:http/types@0.2.12", Need::Http, "http = { hosts = [\"HOST\"] }"),
        ("wasi:http/outgoing-handler@0.2.0", Need::Http, "http = { hosts = [\"HOST\"] }"),
        ("shardmill:processor/metrics@0.1.0", Need::Metrics, "metrics = true"),
    ] {
        let interface = interface(&[import], &[]);
        assert_eq!(interface.needs(), BTreeSet::from([need]));
        let expected = format!("{import} (add `{line}` to [processors.flights.grants])");
        assert_eq!(interface.not_granted("flights", &Grants::default()), [expected]);
        assert_eq!(interface.not_granted("flights", &all()), Vec::<String>::new());
        assert_eq!(interface.never_granted(), Vec::<String>::new());
    }
}

#[test]
fn what_is_imported_for_its_types_needs_no_grant() {
    let mut interface = interface(&["wasi:clocks/monotonic-clock@0.2.6", "wasi:http/types@0.2.6"], &[]);
    interface.types_alone.insert(0);
    assert_eq!(interface.needs(), BTreeSet::from([Need::Http]));
    assert_eq!(interface.not_granted("flights", &Grants::default()).len(), 1);
}

/// A component that imports the clock, as an instance of this type.
fn with_clock(declarations: &[&[u8]]) -> Vec<u8> {
    let name = b"wasi:clocks/monotonic-clock@0.2.6";
    let types = [&[1, 0x42, declarations.len() as u8][..], &declarations.concat()].concat();
    let imports = [&[1, 0, name.len() as u8][..], name, &[5, 0]].concat();
    let section = |id: u8, contents: &[u8]| [&[id, contents.len() as u8][..], contents].concat();
    [b"\0asm\x0d\0\x01\0".to_vec(), section(7, &types), section(10, &imports)].concat()
}

#[test]
fn an_interface_without_a_function_is_there_for_its_types() {
    let duration: [&[u8]; 2] = [&[0x01, 0x77], b"\x04\0\x08duration\x03\0\0"];
    let now: [&[u8]; 2] = [&[0x01, 0x40, 0, 0, 0x77], b"\x04\0\x03now\x01\x02"];
    let clock = Interface::read(&with_clock(&duration)).unwrap();
    assert_eq!((clock.imports.len(), clock.needs()), (1, BTreeSet::new()));
    let called = [duration, now].concat();
    assert_eq!(Interface::read(&with_clock(&called)).unwrap().needs(), BTreeSet::from([Need::Clocks]));
    assert_eq!(Interface::read(&with_clock(&[])).unwrap().needs(), BTreeSet::from([Need::Clocks]));
    // A resource is the host's to make.
    let resource: [&[u8]; 1] = [b"\x04\0\x04tick\x03\x01"];
    assert_eq!(Interface::read(&with_clock(&resource)).unwrap().needs(), BTreeSet::from([Need::Clocks]));
}

#[test]
fn no_more_names_are_read_than_there_may_be() {
    let import = [&[0, 1][..], b"n", &[5, 0]].concat();
    // It says that there are millions, and ends after the first that is too many: nothing behind that is looked at.
    let imports = |count: usize| {
        let imports = [&[0xff, 0xff, 0xff, 0x07][..], &import.repeat(count)].concat();
        let length = [imports.len() as u8 | 0x80, (imports.len() >> 7) as u8];
        [b"\0asm\x0d\0\x01\0".to_vec(), vec![10], length.to_vec(), imports].concat()
    };
    assert!(matches!(Interface::read(&imports(OUTSIDE)), Err(Unreadable::Broken(_))));
    assert_eq!(Interface::read(&imports(OUTSIDE + 1)), Err(Unreadable::TooMuch(TooMuch::Outside)));
}

#[test]
fn types_that_nest_too_deep_are_refused() {
    let types = [&[1][..], &[0x41, 1, 1].repeat(3000), &[0x41, 0]].concat();
    let length = [types.len() as u8 | 0x80, (types.len() >> 7) as u8];
    let bytes = [b"\0asm\x0d\0\x01\0".to_vec(), vec![7], length.to_vec(), types].concat();
    assert_eq!(Interface::read(&bytes), Err(Unreadable::TooMuch(TooMuch::Depth)));
}

#[test]
fn what_nobody_is_granted_is_refused_by_name() {
    let imports = [
        "wasi:sockets/tcp@0.2.6",
        "wasi:http/incoming-handler@0.2.6",
        "wasi:cli/stdout@0.3.0",
        "wasi:clocks/monotonic-clock@0.3.0-rc-2025-09-16",
        "wasi:keyvalue/store@0.2.0",
        "shardmill:processor/state@0.1.0",
        "shardmill:processor/logging@0.2.0",
        "wasi:io/poll",
        "run",
    ];
    let refused = interface(&imports, &[]).never_granted();
    assert_eq!(refused.len(), imports.len(), "{refused:?}");
    for (import, refused) in imports.iter().zip(&refused) {
        assert!(refused.starts_with(&format!("{import} (")), "{refused}");
    }
    assert!(refused[2].contains("WASI 0.2"), "{refused:?}");
}
