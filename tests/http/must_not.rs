//! What servers of this kind have got wrong, and the tests that it is not so here.
//!
//! Tests in this folder are named after the number of what must not be. Each asks the routes that any caller asks, and
//! is short; where a test elsewhere goes deeper, it is named beside.
//!
//! 1. **A score hangs on the prefix cache, batch mates, the size of prefill chunks, order, concurrency or evictions.**
//!    `m01_a_score_does_not_depend_on_cache_batch_mates_chunk_size_order_or_concurrency`,
//!    `m01_a_score_does_not_depend_on_prior_eviction`;
//!    threads and any mix: `tests/engine_invariance.rs::prefill_chunks_threads_and_early_exit_change_nothing`,
//!    `tests/engine_invariance.rs::any_mix_on_any_engine_gives_each_its_own_rows`,
//!    preemptions: `tests/engine_invariance.rs::rows_read_before_a_preemption_are_read_again`.
//! 2. **A query is cut, a chunk is cut unsaid, a long prompt loses its head.**
//!    `m02_no_query_is_cut_and_no_chunk_without_its_flag`,
//!    `m02_what_is_too_long_is_refused_with_both_numbers_and_loses_no_head`;
//!    before it is tokenised: `tests/http/errors.rs::a_text_that_cannot_fit_is_not_tokenised`.
//! 3. **BOS twice or not at all, templates that drift, text that becomes control tokens.**
//!    `m03_bos_comes_once`, `m03_no_text_becomes_a_control_token`;
//!    roles, tools and templates: `tests/http/prompts.rs::no_message_makes_control_tokens`,
//!    templates as the originals render them: `tests/tokenizer_conformance.rs::rendered_chats_equal_the_originals`,
//!    `tests/http/real.rs::chats_have_the_reference_ids`.
//! 4. **Spans go wrong: twins, a chunk within another, white space, emoji, RTL, CRLF, NUL, zero width, amid a merge.**
//!    `m04_spans_tile_every_text_and_decode_back`;
//!    on any text: `src/prompt/layout/tests.rs::any_text_is_laid_out_soundly`,
//!    `src/prompt/layout/tests.rs::a_token_over_the_border_belongs_to_the_chunk_and_its_offset_is_clamped`.
//! 5. **The inputs with and without the query do not share their prefix token by token.**
//!    `m05_the_control_is_the_same_prefix_whatever_the_query_begins_with`;
//!    in the layout: `src/prompt/layout/tests.rs::pieces_are_tokenised_on_their_own`,
//!    in the engine: `tests/engine_invariance.rs::one_pass_with_two_read_positions_is_two_passes`.
//! 6. **Empty, blank or one-token chunks, or no response, give null, NaN or an error.**
//!    `m06_no_chunk_gives_null_or_an_error_however_little_it_holds`;
//!    the formulas: `src/score/twin.rs::flags_name_exactly_their_edges`.
//! 7. **Wrong KV heads under GQA, wrong head sizes, norms or rotations; layers without full rows are taken.**
//!    `m07_each_head_is_itself_among_others_and_unlike_its_neighbours`,
//!    `m07_layers_without_full_rows_are_refused_at_startup`;
//!    against PyTorch: `tests/model_golden.rs::rows_of_every_head_equal_the_reference`,
//!    `tests/model_golden.rs::rotary_frequencies_equal_the_reference`,
//!    a head set on such a layer: `src/score/heads/tests.rs::what_does_not_fit_the_model_is_refused_with_the_facts`.
//! 8. **Head files of other models, indices out of range or from 1, heads counted twice are taken.**
//!    `m08_a_head_file_for_another_model_or_with_wrong_indices_is_refused_at_startup`,
//!    `m08_heads_of_a_request_that_do_not_exist_or_come_twice_are_refused`.
//! 9. **Results are not sorted, have no index, misread `top_n`, rank the wrong way round or break ties at random.**
//!    `m09_results_are_sorted_the_best_first_and_ties_keep_their_order`,
//!    `m09_top_n_is_how_many_at_most_and_nothing_is_all`.
//! 10. **One bad document fails all of them; equal ids become one.**
//!     `m10_a_bad_document_fails_no_other`, `m10_equal_ids_and_equal_texts_are_different_chunks`.
//! 11. **Places are taken by texts and not by requests; scores starve chats; what is given up keeps its KV, or one of
//!     its passes does.**
//!     `m11_a_request_is_one_place_whatever_it_holds`, `m11_no_burst_of_scores_starves_a_chat`,
//!     `m11_no_flood_of_long_answers_keeps_a_score_from_starting`,
//!     `m11_what_is_given_up_is_not_worked_for_and_leaves_no_kv_and_no_place`;
//!     on sockets: `tests/http/cancel.rs::a_cut_connection_cancels_whatever_it_asked_for`,
//!     `tests/clients/test_going_away.py::test_scores_nobody_waits_for_are_not_computed`,
//!     how a step is shared: `src/sched/tests.rs::chats_and_scores_that_prefill_share_a_step_by_halves`.
//! 12. **Errors have the wrong shape or status, the body's limit is fixed, a panic ends the engine.**
//!     `m12_each_failure_has_its_status_and_one_shape_in_each_dialect`,
//!     `m12_a_panic_ends_its_own_request_and_not_the_engine`;
//!     every field: `tests/http/errors.rs::each_wrong_field_is_named`,
//!     `tests/http/errors.rs::malformed_bodies_are_the_callers_fault`.
//! 13. **Characters are split, stops missed across tokens, ends misnamed, `[DONE]` is missing, usage comes unasked.**
//!     `m13_no_character_is_split_and_a_stream_says_what_the_whole_answer_says`,
//!     `m13_a_stop_string_is_found_across_tokens_and_nothing_of_it_is_told`,
//!     `m13_the_finish_reason_and_the_usage_are_those_of_what_happened`,
//!     `m13_a_stream_ends_with_done_and_tells_usage_only_when_asked`.
//! 14. **Tool calls and reasoning are taken out of text that is wanted raw; `</tool_call>` in a string ends a call.**
//!     `m14_answers_are_raw_text_unless_tools_are_sent`,
//!     `m14_reasoning_stays_in_the_text_unless_the_server_reads_it`,
//!     `m14_a_closing_tag_inside_a_json_string_ends_no_call`.
//! 15. **Routes beside the main ones ask for no key, keys are compared carelessly, salts share a cache.**
//!     `m15_every_route_refuses_every_wrong_key`, `m15_no_cache_is_shared_between_keys_or_salts`;
//!     digests are compared, in constant time: `src/http/auth.rs::only_the_exact_key_opens`.
//! 16. **Cached tokens are left out or too many; of two passes one is counted.**
//!     `m16_cached_tokens_are_those_the_engine_found_and_are_always_told`, `m16_the_tokens_of_both_passes_are_counted`.
//! 17. **Health is told before the model is there; callers' words become labels.**
//!     `m17_health_is_not_ok_before_the_model_is_there`, `m17_no_word_of_a_caller_makes_a_series`.
//! 18. **Two blocks with one hash are taken for one.**
//!     `m18_no_block_of_the_cache_is_taken_for_another`;
//!     with a hash that collides: `src/kv/tests.rs::a_hash_collision_costs_a_miss_and_never_a_wrong_hit`.

#[path = "must_not/answers.rs"]
mod answers;
#[path = "must_not/both_loads.rs"]
mod both_loads;
#[path = "must_not/house.rs"]
mod house;
#[path = "must_not/ranking.rs"]
mod ranking;
#[path = "must_not/scores.rs"]
mod scores;
#[path = "must_not/serving.rs"]
mod serving;
#[path = "must_not/texts.rs"]
mod texts;

use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn the_list_names_every_test_and_only_tests_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let own = read(&root.join("tests/http/must_not.rs"));
    let doc: String = own.lines().take_while(|line| line.starts_with("//!")).collect();
    let names = doc.split('`').skip(1).step_by(2);
    let named = |name: &&str| name.contains("::") || name.starts_with("m0") || name.starts_with("m1");
    let (elsewhere, own): (Vec<&str>, Vec<&str>) = names.filter(named).partition(|name| name.contains("::"));
    let mut tests = BTreeSet::new();
    for entry in fs::read_dir(root.join("tests/http/must_not")).unwrap() {
        let text = read(&entry.unwrap().path());
        let names =
            text.split("async fn m").skip(1).map(|rest| format!("m{}", rest.split('(').next().unwrap()));
        tests.extend(names);
    }
    assert_eq!(own.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), tests);
    for number in 1..=18 {
        assert!(
            tests.iter().any(|name| name.starts_with(&format!("m{number:02}_"))),
            "nothing tests {number}"
        );
    }
    for place in elsewhere {
        let (file, name) = place.split_once("::").unwrap();
        let defines = [format!("fn {name}("), format!("def {name}(")];
        let text = read(&root.join(file));
        assert!(defines.iter().any(|define| text.contains(define)), "{place} is not there");
    }
}
