# The relay in a container. Build: docker build -t postrider .
# Run: docker run -e POSTRIDER_DATABASE_URL=… postrider run --sink stdout
FROM rust:1.95-bookworm AS build
WORKDIR /src
# For Kafka's client, which is built from C.
RUN apt-get update && apt-get install --no-install-recommends -y libssl-dev pkg-config zlib1g-dev
COPY . .
RUN cargo build --locked --release -p postrider-cli \
 && strip target/release/postrider

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --no-install-recommends -y ca-certificates libssl3 zlib1g \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin postrider
COPY --from=build /src/target/release/postrider /usr/local/bin/postrider
USER 10001
# Inside of a container loopback is of no use to those who check. Publish the port to your own network only.
ENV POSTRIDER__ADMIN__LISTEN=0.0.0.0:9464
EXPOSE 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 CMD ["postrider", "health"]
ENTRYPOINT ["postrider"]
CMD ["run"]
