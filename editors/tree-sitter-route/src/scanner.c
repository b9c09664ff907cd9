// Reads names: a letter or `_`, then letters, digits and `_`, and no word of the language (words.h, written by tools/editors.py).
#include "tree_sitter/parser.h"
#include "words.h"

#include <string.h>

void *tree_sitter_route_external_scanner_create(void) { return NULL; }
void tree_sitter_route_external_scanner_destroy(void *payload) { (void)payload; }
void tree_sitter_route_external_scanner_deserialize(void *payload, const char *buffer, unsigned length) {
  (void)payload, (void)buffer, (void)length;
}
unsigned tree_sitter_route_external_scanner_serialize(void *payload, char *buffer) {
  (void)payload, (void)buffer;
  return 0;
}

static bool is_space(int32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f'; }
static bool is_letter(int32_t c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_'; }
static bool is_digit(int32_t c) { return '0' <= c && c <= '9'; }

bool tree_sitter_route_external_scanner_scan(void *payload, TSLexer *lexer, const bool *valid) {
  (void)payload;
  if (!valid[0]) return false;
  while (is_space(lexer->lookahead)) lexer->advance(lexer, true);
  if (!is_letter(lexer->lookahead)) return false;
  char text[LONGEST_WORD + 1] = {0};
  unsigned length = 0;
  while (is_letter(lexer->lookahead) || is_digit(lexer->lookahead)) {
    if (length < LONGEST_WORD) text[length] = (char)lexer->lookahead;
    length++;
    lexer->advance(lexer, false);
  }
  if (length <= LONGEST_WORD) {
    for (unsigned i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
      if (!strcmp(text, WORDS[i])) return false;
    }
  }
  lexer->result_symbol = 0;
  return true;
}
