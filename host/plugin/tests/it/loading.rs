use std::fs;

use serde_json::json;
use shardmill_plugin::module::Error;
use shardmill_plugin::{Abi, Digest, Form, Grants, Limits, Plugin, RuntimeOptions, Settings};

use crate::forge::{component, section, with_core_module};
use crate::support::{World, guest};

const BATCH: &str = "shardmill:processor/batch@0.1.0";
const COLUMNAR: &str = "shardmill:processor/columnar@0.1.0";

async fn refused(bytes: Vec<u8>) -> Error {
    World::new().runtime.load("late.wasm", bytes).await.unwrap_err()
}

#[tokio::test]
async fn a_module_says_what_it_is() {
    let world = World::new();
    let rows = world.module(Form::Rows).await;
    assert_eq!((rows.abi(), rows.form(), rows.hooks()), (Abi::V0_1, Form::Rows, true));
    assert_eq!(rows.digest(), Digest::of(&guest(Form::Rows)));
    assert_eq!(rows.size(), guest(Form::Rows).len());
    assert!(rows.exports().contains(&BATCH.to_owned()), "{:?}", rows.exports());
    assert!(rows.imports().contains(&"shardmill:processor/logging@0.1.0".to_owned()), "{:?}", rows.imports());
    let columnar = world.module(Form::Columnar).await;
    assert_eq!((columnar.form(), columnar.hooks()), (Form::Columnar, false));
}

#[tokio::test]
async fn what_is_no_component_is_refused_with_the_way_to_make_one() {
    let error = refused(b"#!/bin/sh".to_vec()).await;
    assert!(matches!(error, Error::NotWasm { .. }) && error.to_string().starts_with("late.wasm is not WebAssembly"));
    let error = refused(b"\0asm\x01\0\0\0".to_vec()).await;
    assert!(matches!(error, Error::CoreModule { .. }) && error.to_string().contains("wasm-tools component new"));
    let cut = guest(Form::Rows)[..5000].to_vec();
    let error = refused(cut).await;
    assert!(matches!(error, Error::Broken { .. }) && error.to_string().contains("copy it again"), "{error}");
}

#[tokio::test]
async fn compiled_code_is_never_accepted() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("cache");
    let world =
        World::with(RuntimeOptions { cache_dir: Some(cache.clone()), max_instances: 1, threads: None, compiler: None });
    world.module(Form::Columnar).await;
    let file = fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    let file = fs::read(file).unwrap();
    let code = file.windows(4).position(|bytes| bytes == b"\x7fELF").unwrap();
    for bytes in [file.clone(), file[code..].to_vec()] {
        assert!(matches!(world.runtime.load("late", bytes).await.unwrap_err(), Error::NotWasm { .. }));
    }
}

#[tokio::test]
async fn another_world_or_version_is_named() {
    let error = refused(component(&[], &["wasi:cli/run@0.2.6"])).await;
    let text = error.to_string();
    assert!(text.contains("wasi:cli/run@0.2.6") && text.contains(BATCH) && text.contains(COLUMNAR), "{text}");
    assert!(refused(component(&[], &[])).await.to_string().contains("it exports nothing"));
    let text = refused(component(&[], &["shardmill:processor/batch@0.2.0"])).await.to_string();
    assert!(text.contains("shardmill:processor/batch@0.2.0") && text.contains("0.1.0"), "{text}");
    let text = refused(component(&["shardmill:processor/logging@0.2.0"], &[BATCH])).await.to_string();
    assert!(text.contains("shardmill:processor/logging@0.2.0 (another version of the contract"), "{text}");
    assert!(matches!(refused(component(&[], &[BATCH, COLUMNAR])).await, Error::BothForms { .. }));
}

#[tokio::test]
async fn an_interface_of_the_right_name_with_other_types_is_refused_before_it_runs() {
    for interface in [BATCH, COLUMNAR] {
        let error = refused(component(&[], &[interface])).await;
        assert!(matches!(error, Error::Types { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(interface) && text.contains("`init`") && text.contains("rebuild it"), "{text}");
    }
}

#[tokio::test]
async fn code_that_this_host_cannot_compile_is_refused_with_the_reason() {
    // A component whose core module returns nothing where it promises a number.
    let module = [section(1, &[1, 0x60, 0, 1, 0x7f]), section(3, &[1, 0]), section(10, &[1, 2, 0, 0x0b])];
    let error = refused(with_core_module(guest(Form::Columnar), &module, 1)).await;
    assert!(matches!(error, Error::Compile { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("late.wasm") && text.contains("type mismatch") && text.contains("build it"), "{text}");
}

#[tokio::test]
async fn imports_that_are_not_granted_are_named_one_by_one() {
    let imports =
        ["wasi:sockets/tcp@0.2.6", "wasi:cli/stdout@0.2.6", "wasi:http/incoming-handler@0.2.6", "wasi:cli/stdin@0.3.0"];
    let Error::NotGranted { imports, .. } = refused(component(&imports, &[BATCH])).await else { panic!() };
    let named: Vec<_> = imports.0.iter().map(|import| import.split(' ').next().unwrap()).collect();
    assert_eq!(named, ["wasi:sockets/tcp@0.2.6", "wasi:http/incoming-handler@0.2.6", "wasi:cli/stdin@0.3.0"]);
    assert!(imports.0[0].contains("never granted") && imports.0[2].contains("WASI 0.2"), "{imports}");
}

#[tokio::test]
async fn what_the_configuration_does_not_grant_is_refused_to_that_processor_alone() {
    let world = World::new();
    let module = world.module(Form::Rows).await;
    let settings = |clocks| Settings {
        processor: "flights".into(),
        config: json!({}),
        limits: Limits::default(),
        grants: Grants { clocks, metrics: true, ..Grants::default() },
    };
    let error = Plugin::new(&world.runtime, module.clone(), settings(false)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("wasi:clocks/monotonic-clock@0.2")
            && text.contains("add `clocks = true` to [processors.flights.grants]"),
        "{text}"
    );
    Plugin::new(&world.runtime, module, settings(true)).unwrap();
}

#[tokio::test]
async fn the_next_start_loads_compiled_code() {
    let home = tempfile::tempdir().unwrap();
    let options =
        RuntimeOptions { cache_dir: Some(home.path().join("cache")), max_instances: 4, threads: None, compiler: None };
    for hits in [0, 1] {
        let world = World::with(options.clone());
        world.module(Form::Rows).await;
        assert_eq!(world.metrics.cache_hits(), hits);
        assert!(world.process(Form::Rows, "echo").await.0.is_ok());
    }
}
