# One interface target with the flags that every target of the tree shares.
add_library(varve_options INTERFACE)
target_compile_options(varve_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow
  # The formats promise ggml's codes bit for bit: a*b+c must not become a fused operation unasked.
  -ffp-contract=off)
if(VARVE_SANITIZE)
  target_compile_options(varve_options INTERFACE -fsanitize=${VARVE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(varve_options INTERFACE -fsanitize=${VARVE_SANITIZE})
endif()
