//! Bad input of every kind, with the real binary: each case ends with its exit status and its code, and what is said to be
//! kept is looked at. `docs/errors.md` is made of what is seen here, and of what there is to say about each code.
//!
//! Each group of cases is a test of its own, and runs once, whoever asks for its [`Row`]s first.

mod commands;
mod configuration;
mod dead_letters;
mod document;
mod explain;
mod fleet;
mod input;
mod plugins;
mod records;
mod row;
mod services;
mod sources;
mod spools;
mod tables;
mod workers;

use row::{Row, assert_right};
use tokio::sync::OnceCell;

/// Cases of one kind: a test, and a part of the table.
macro_rules! groups {
    ($($test:ident: $module:ident, $title:literal;)+) => {
        $(
            mod $test {
                use super::*;

                pub(crate) static SEEN: OnceCell<Vec<Row>> = OnceCell::const_new();

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn says_its_code_and_keeps_what_it_should() {
                    assert_right(SEEN.get_or_init($module::rows).await);
                }
            }
        )+

        /// All groups with their titles, in the order of the document.
        async fn all() -> Vec<(&'static str, &'static [Row])> {
            vec![$(($title, $test::SEEN.get_or_init($module::rows).await.as_slice())),+]
        }
    };
}

groups! {
    a_configuration_that_is_wrong: configuration, "Configurations";
    a_plugin_that_is_wrong: plugins, "Plugins";
    a_record_that_is_wrong: records, "Records";
    an_input_that_is_wrong: input, "What `put` reads";
    a_service_that_refuses: services, "Services";
    a_table_that_is_wrong: tables, "Lease tables";
    an_order_that_cannot_be_obeyed: workers, "Orders to a worker that runs";
    a_deployment_that_is_wrong: fleet, "Deployments to a fleet";
    a_place_of_dead_letters_that_is_wrong: dead_letters, "Dead letters";
    a_spool_that_is_wrong: spools, "Spools";
    a_command_line_that_is_wrong: commands, "Command lines";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_has_every_case_as_it_was_seen_and_every_code() {
    document::assert_up_to_date(&all().await);
}
