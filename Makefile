# The names that a team types. The work is done by cargo and the scripts.

CONFIG ?= postrider.toml

.PHONY: build run-outbox-publisher demo test check image

build: ## The binary, in target/release/postrider.
	cargo build --locked --release -p postrider-cli

run-outbox-publisher: ## The relay, with $(CONFIG) or with POSTRIDER__… variables.
	cargo run --locked -p postrider-cli -- run $(if $(wildcard $(CONFIG)),--config $(CONFIG))

demo: ## Everything on SQLite, without a server.
	cargo run --locked -p postrider-cli --no-default-features -- demo

test: ## Every test, against private servers.
	scripts/test

check: ## What must hold before a change is merged.
	.ci/run

image: ## The container image.
	docker build -t postrider .
