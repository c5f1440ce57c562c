// SPDX-License-Identifier: Apache-2.0
#include "PtxText.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace pumpgraph::annotate {
namespace {

using llvm::SmallVector;
using llvm::StringRef;

struct Token {
  enum class Kind : uint8_t {
    name,     ///< `st`, `%tid`
    operand,  ///< `$0`
    modifier, ///< `.global`, `.L2::128B`: without the dot
    number,
    string,
    mark, ///< one character, or "::"
  };
  Kind kind;
  std::string text;
  unsigned operand = 0;

  bool is(StringRef mark) const { return kind == Kind::mark && text == mark; }
};
using Tokens = llvm::ArrayRef<Token>;

bool continuesName(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$';
}

/// The text as the assembler gets it, with a mark in place of each operand that is a register.
class Printer {
public:
  static constexpr char begin = '\1', end = '\2';

  explicit Printer(PtxImmediates operands) : operands_(operands) {}

  /// Nothing if it has what is not known here.
  std::optional<std::string> print(StringRef text) {
    while (!text.empty()) {
      if (text.front() == begin || text.front() == end)
        return std::nullopt;
      if (!text.consume_front("$")) {
        result_ += text.front();
        text = text.drop_front();
      } else if (text.consume_front("$")) {
        result_ += '$';
      } else if (text.consume_front("{:uid}")) {
        result_ += '0'; // one number throughout the text
      } else {
        const bool isBraced = text.consume_front("{");
        unsigned operand = 0;
        if (text.consumeInteger(10, operand) || operand >= operands_.size())
          return std::nullopt;
        if (isBraced)
          text = text.drop_until([](char c) { return c == '}'; });
        if (isBraced && !text.consume_front("}"))
          return std::nullopt;
        result_ += operands_[operand] ? std::to_string(*operands_[operand]) : begin + std::to_string(operand) + end;
      }
    }
    return result_;
  }

private:
  PtxImmediates operands_;
  std::string result_;
};

class Lexer {
public:
  explicit Lexer(StringRef text) : text_(text) {}

  std::optional<std::vector<Token>> lex() {
    while (skipBlanks())
      if (!lexToken())
        return std::nullopt;
    if (isCut_)
      return std::nullopt;
    return std::move(tokens_);
  }

private:
  /// False at the end.
  bool skipBlanks() {
    for (;;) {
      text_ = text_.ltrim();
      if (text_.starts_with("//")) {
        text_ = text_.drop_until([](char c) { return c == '\n'; });
      } else if (text_.starts_with("/*")) {
        const size_t end = text_.find("*/", 2);
        isCut_ |= end == StringRef::npos;
        text_ = isCut_ ? StringRef() : text_.substr(end + 2);
      } else {
        return !text_.empty();
      }
    }
  }

  bool lexToken() {
    const char first = text_.front();
    if (first == Printer::begin)
      return lexOperand();
    if (llvm::isAlpha(first) || first == '_' || first == '$' || first == '%')
      return add(Token::Kind::name, 1 + text_.drop_front().take_while(continuesName).size());
    if (llvm::isDigit(first))
      return add(Token::Kind::number, text_.take_while([](char c) { return continuesName(c) || c == '.'; }).size());
    if (first == '.')
      return lexModifier();
    if (first == '"') {
      const size_t end = text_.find('"', 1);
      return end != StringRef::npos && add(Token::Kind::string, end + 1);
    }
    if (text_.starts_with("::"))
      return add(Token::Kind::mark, 2);
    return StringRef(",;:{}[]()+-*/|!@<>=~&^").contains(first) && add(Token::Kind::mark, 1);
  }

  /// An operand that is part of a longer name is none.
  bool lexOperand() {
    const bool continuesToken = text_.data() == end_ && !tokens_.empty() && tokens_.back().kind != Token::Kind::mark;
    unsigned operand = 0;
    text_ = text_.drop_front();
    text_.consumeInteger(10, operand);
    text_ = text_.drop_front();
    tokens_.push_back({Token::Kind::operand, "", operand});
    end_ = text_.data();
    return !continuesToken && (text_.empty() || !continuesName(text_.front()));
  }

  bool lexModifier() {
    text_ = text_.drop_front();
    size_t size = text_.take_while(continuesName).size();
    if (size == 0)
      return false;
    while (text_.substr(size).starts_with("::"))
      size += 2 + text_.substr(size + 2).take_while(continuesName).size();
    return add(Token::Kind::modifier, size);
  }

  bool add(Token::Kind kind, size_t size) {
    tokens_.push_back({kind, text_.take_front(size).str()});
    text_ = text_.drop_front(size);
    end_ = text_.data();
    return true;
  }

  StringRef text_;
  const char *end_ = nullptr; ///< of the last token
  bool isCut_ = false;
  std::vector<Token> tokens_;
};

/// Registers that the hardware fills, and constants. No address is in them.
bool isSpecial(StringRef name) {
  if (name == "_" || name == "WARP_SZ")
    return true;
  if (!name.consume_front("%"))
    return false;
  for (const StringRef prefix : {"lanemask_", "clock", "globaltimer", "pm", "envreg", "reserved_smem_"})
    if (name.starts_with(prefix))
      return true;
  return llvm::is_contained({"tid",
                             "ntid",
                             "laneid",
                             "warpid",
                             "nwarpid",
                             "ctaid",
                             "nctaid",
                             "smid",
                             "nsmid",
                             "gridid",
                             "clusterid",
                             "nclusterid",
                             "cluster_ctaid",
                             "cluster_nctaid",
                             "cluster_ctarank",
                             "cluster_nctarank",
                             "is_explicit_cluster",
                             "total_smem_size",
                             "aggr_smem_size",
                             "dynamic_smem_size",
                             "current_graph_exec"},
                            name);
}

class Parser {
public:
  Parser(std::vector<Token> tokens, size_t operands) : tokens_(std::move(tokens)), rest_(tokens_) {
    for (size_t i = 0; i < operands; ++i)
      text_.names.push_back({PtxName::Kind::operand, ""});
    scopes_.emplace_back();
  }

  PtxText parse() {
    while (text_.isUnderstood && !rest_.empty())
      text_.isUnderstood = parseStatement();
    // A brace that another text closes: what is declared here lives on.
    text_.isUnderstood &= scopes_.size() == 1;
    return std::move(text_);
  }

private:
  bool consume(StringRef mark) {
    if (rest_.empty() || !rest_.front().is(mark))
      return false;
    rest_ = rest_.drop_front();
    return true;
  }

  /// Up to the next semicolon, without it.
  std::optional<Tokens> takeStatement() {
    const auto *const end = llvm::find_if(rest_, [](const Token &token) { return token.is(";"); });
    if (end == rest_.end())
      return std::nullopt;
    const Tokens statement(rest_.begin(), end);
    rest_ = Tokens(end + 1, rest_.end());
    return statement;
  }

  bool parseStatement() {
    if (consume(";"))
      return true;
    if (consume("{")) {
      scopes_.emplace_back();
      return true;
    }
    if (consume("}")) {
      scopes_.pop_back();
      return !scopes_.empty();
    }
    if (rest_.size() > 1 && rest_.front().kind == Token::Kind::name && rest_[1].is(":")) { // a label
      rest_ = rest_.drop_front(2);
      return true;
    }
    const std::optional<Tokens> statement = takeStatement();
    if (!statement)
      return false;
    return statement->front().kind == Token::Kind::modifier ? declare(*statement) : parseInstruction(*statement);
  }

  /// `.reg .b64 a, b<4>` and `.shared .align 8 .b64 buffer[4]`.
  bool declare(Tokens statement) {
    const StringRef directive = statement.front().text;
    if (directive == "pragma")
      return true;
    if (!llvm::is_contained({"reg", "shared", "local", "global", "const"}, directive))
      return false;
    statement = statement.drop_front();
    while (!statement.empty() &&
           (statement.front().kind == Token::Kind::modifier || statement.front().kind == Token::Kind::number))
      statement = statement.drop_front();
    // One name after each comma; then nothing, how many there are, or how large it is.
    bool expectsName = true;
    for (const Token &token : statement) {
      if (expectsName) {
        if (token.kind != Token::Kind::name)
          return false;
        const auto kind = scopes_.size() == 1 ? PtxName::Kind::kept : PtxName::Kind::own;
        scopes_.back()[token.text] = text_.names.size();
        text_.names.push_back({kind, token.text});
        expectsName = false;
      } else if (token.is(",")) {
        expectsName = true;
      } else if (token.is("<")) {
        isFamily_.resize(text_.names.size());
        isFamily_.back() = true;
      } else if (!token.is(">") && !token.is("[") && !token.is("]") && token.kind != Token::Kind::number) {
        return false;
      }
    }
    return !expectsName;
  }

  bool parseInstruction(Tokens tokens) {
    PtxStatement statement;
    if (tokens.front().is("@")) {
      statement.isConditional = true;
      tokens = tokens.drop_front();
      if (!tokens.empty() && tokens.front().is("!"))
        tokens = tokens.drop_front();
      if (tokens.empty() || (tokens.front().kind != Token::Kind::name && tokens.front().kind != Token::Kind::operand))
        return false;
      nameOf(tokens.front());
      tokens = tokens.drop_front();
    }
    if (tokens.empty() || tokens.front().kind != Token::Kind::name)
      return false;
    statement.opcode = tokens.front().text;
    tokens = tokens.drop_front();
    while (!tokens.empty() && tokens.front().kind == Token::Kind::modifier) {
      statement.modifiers.push_back(tokens.front().text);
      tokens = tokens.drop_front();
    }
    // Names of labels.
    const bool isBranch = statement.opcode == "bra" || statement.opcode == "brx";
    if (!isBranch && !parseOperands(tokens, statement))
      return false;
    text_.statements.push_back(std::move(statement));
    return true;
  }

  /// Splits at the commas outside brackets and braces.
  bool parseOperands(Tokens tokens, PtxStatement &statement) {
    SmallVector<char, 4> open;
    size_t begin = 0;
    for (size_t i = 0; i <= tokens.size(); ++i) {
      if (i == tokens.size() || (tokens[i].is(",") && open.empty())) {
        if (i > begin)
          statement.operands.push_back(parseOperand(tokens.slice(begin, i - begin)));
        begin = i + 1;
        continue;
      }
      if (tokens[i].kind != Token::Kind::mark)
        continue;
      const char mark = tokens[i].text.front();
      if (StringRef("[{(").contains(mark)) {
        open.push_back(mark);
      } else if (StringRef("]})").contains(mark)) {
        if (open.empty() || open.pop_back_val() != (mark == ']' ? '[' : mark == '}' ? '{' : '('))
          return false;
      } else if (mark == '@') {
        return false;
      }
    }
    return open.empty();
  }

  PtxOperand parseOperand(Tokens tokens) {
    PtxOperand operand;
    operand.isAddress = tokens.front().is("[");
    for (const Token &token : tokens)
      if (const std::optional<unsigned> name = nameOf(token))
        operand.names.push_back(*name);
    operand.isPlain = operand.names.size() == 1 && tokens.size() == (operand.isAddress ? 3 : 1);
    return operand;
  }

  /// Nothing for what holds no value: a number, a special register.
  std::optional<unsigned> nameOf(const Token &token) {
    if (token.kind == Token::Kind::operand)
      return token.operand;
    if (token.kind != Token::Kind::name)
      return std::nullopt;
    for (const auto &scope : llvm::reverse(scopes_)) {
      if (const auto known = scope.find(token.text); known != scope.end())
        return known->second;
      // `value<4>` declares value0 to value3. One stands for all.
      const auto family = scope.find(StringRef(token.text).rtrim("0123456789"));
      if (family != scope.end() && family->second < isFamily_.size() && isFamily_[family->second])
        return family->second;
    }
    if (isSpecial(token.text)) {
      text_.specialRegisters.push_back(token.text);
      return std::nullopt;
    }
    const auto [symbol, isNew] = symbols_.try_emplace(token.text, text_.names.size());
    if (isNew)
      text_.names.push_back({PtxName::Kind::symbol, token.text});
    return symbol->second;
  }

  const std::vector<Token> tokens_;
  Tokens rest_;
  PtxText text_;
  SmallVector<llvm::StringMap<unsigned>, 2> scopes_;
  std::vector<bool> isFamily_; ///< by name
  llvm::StringMap<unsigned> symbols_;
};

} // namespace

PtxText parsePtx(StringRef text, PtxImmediates operands) {
  PtxText nothing;
  nothing.isUnderstood = false;
  nothing.names.resize(operands.size(), {PtxName::Kind::operand, ""});
  const std::optional<std::string> printed = Printer(operands).print(text);
  if (!printed)
    return nothing;
  std::optional<std::vector<Token>> tokens = Lexer(*printed).lex();
  return tokens ? Parser(std::move(*tokens), operands.size()).parse() : nothing;
}

} // namespace pumpgraph::annotate
