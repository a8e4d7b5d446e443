//! The store of the guide "write your own store" against the suite. What it promises about its file is tested apart, in
//! `own_store_file.rs`, so that nothing here waits for the disk.

#[path = "../examples/own_store.rs"]
#[allow(dead_code, reason = "the example has a main function of its own")]
mod own_store;

fn main() {
    windlass_conformance::exercise(own_store::OwnStores { sync: false });
}
