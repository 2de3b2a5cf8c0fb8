//! WebAssembly made by hand: what no compiler would write. The end-to-end tests include this file too.

/// A section of WebAssembly's binary format.
pub(crate) fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id], leb(contents.len()).as_slice(), contents].concat()
}

pub(crate) fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// A component that imports and exports empty interfaces of these names.
pub(crate) fn component(imports: &[&str], exports: &[&str]) -> Vec<u8> {
    let name = |name: &str| [&[0], leb(name.len()).as_slice(), name.as_bytes()].concat();
    let vector = |items: Vec<Vec<u8>>| [leb(items.len()), items.concat()].concat();
    // An instance type without declarations, and one instance of nothing for each export.
    let types = section(7, &[1, 0x42, 0]);
    let imported = vector(imports.iter().map(|import| [name(import), vec![5, 0]].concat()).collect());
    let instances = vector(exports.iter().map(|_| vec![1, 0]).collect());
    let export =
        |(index, export): (usize, &&str)| [name(export), vec![5], leb(imports.len() + index), vec![0]].concat();
    let exported = vector(exports.iter().enumerate().map(export).collect());
    [b"\0asm\x0d\0\x01\0".to_vec(), types, section(10, &imported), section(5, &instances), section(11, &exported)]
        .concat()
}

/// A guest with one more core module, instantiated so many times after everything else.
pub(crate) fn with_core_module(mut component: Vec<u8>, sections: &[Vec<u8>], instances: usize) -> Vec<u8> {
    let modules =
        wasmparser::Parser::new(0).parse_all(&component).fold((0, 0), |(depth, count), payload| {
            match payload.unwrap() {
                wasmparser::Payload::ModuleSection { .. } => (depth + 1, count + usize::from(depth == 0)),
                wasmparser::Payload::ComponentSection { .. } => (depth + 1, count),
                wasmparser::Payload::End(_) => (depth - 1, count),
                _ => (depth, count),
            }
        });
    let module = [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat();
    component.extend(section(1, &module));
    let instance = [vec![0], leb(modules.1), vec![0]].concat();
    component.extend(section(2, &[leb(instances), instance.repeat(instances)].concat()));
    component
}

/// The sections of a module whose start function is this code.
pub(crate) fn starting(code: &[u8]) -> Vec<Vec<u8>> {
    let body = [&[0][..], code, &[0x0b]].concat();
    let entry = [&[1, body.len() as u8][..], &body].concat();
    vec![section(1, &[1, 0x60, 0, 0]), section(3, &[1, 0]), section(8, &[0]), section(10, &entry)]
}

/// `(loop (br 0))`
pub(crate) const SPIN: &[u8] = &[3, 0x40, 0x0c, 0, 0x0b];
/// `unreachable`
pub(crate) const TRAP: &[u8] = &[0];

/// A module with one memory, empty at first, whose start function makes it so many pages of 64 KiB large, and traps if
/// that is refused.
pub(crate) fn growing(pages: usize) -> Vec<Vec<u8>> {
    // i32.const PAGES, memory.grow 0, i32.const -1, i32.eq, (if (unreachable))
    let code = [&[0x41], signed_leb(pages).as_slice(), &[0x40, 0, 0x41, 0x7f, 0x46, 4, 0x40, 0, 0x0b]].concat();
    let mut sections = starting(&code);
    // The section of memories stands before those of the start function and of the code.
    sections.insert(2, section(5, &[1, 0, 0]));
    sections
}

/// A number that is not negative, where the sign counts.
fn signed_leb(number: usize) -> Vec<u8> {
    let mut bytes = leb(number);
    // The highest of the seven bits is the sign.
    if let Some(last) = bytes.last_mut().filter(|last| **last & 0x40 != 0) {
        *last |= 0x80;
        bytes.push(0);
    }
    bytes
}
