//! sqlxmq brings its tables as files that users copy into their migrations. This finds them where cargo unpacked the crate.

use cargo_metadata::MetadataCommand;

fn main() {
    println!("cargo:rerun-if-changed=Cargo.lock");
    // What other platforms need was not downloaded.
    let target = std::env::var("TARGET").expect("cargo says for what it builds");
    let here = ["--offline", "--filter-platform", &target].map(str::to_owned).to_vec();
    let metadata = MetadataCommand::new().other_options(here).exec().expect("cargo metadata");
    let sqlxmq = metadata.packages.iter().find(|package| package.name.as_str() == "sqlxmq").expect("sqlxmq");
    let crate_directory = sqlxmq.manifest_path.parent().expect("a directory");
    println!("cargo:rustc-env=SQLXMQ_MIGRATIONS={}", crate_directory.join("migrations"));
}
