// SPDX-License-Identifier: Apache-2.0
//
// The plugin's two halves: in a device compile it analyses the kernels and leaves what it found for the host compile,
// in a host compile it emits the table. Both run as passes of the compile they are in.
#include "AnalyseKernels.h"
#include "EmitTable.h"
#include "Exchange.h"

#include "clang/AST/ASTConsumer.h"
#include "clang/Basic/CodeGenOptions.h"
#include "clang/Basic/Version.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/FrontendPluginRegistry.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>

namespace pumpgraph::annotate {
namespace {

using llvm::Module;
using llvm::PreservedAnalyses;

struct Options {
  std::string jsonFile; ///< where the device compile puts what it found as well; "-": standard output
  bool makesHostOnly = false;
};

class DevicePass : public llvm::PassInfoMixin<DevicePass> {
public:
  DevicePass(clang::CompilerInstance &compiler, Options options, bool isSimplified)
      : compiler_(compiler), options_(std::move(options)), isSimplified_(isSimplified) {}

  static bool isRequired() { return true; }

  PreservedAnalyses run(Module &module, llvm::ModuleAnalysisManager &modules) {
    auto &functions = modules.getResult<llvm::FunctionAnalysisManagerModuleProxy>(module).getManager();
    const std::vector<KernelAccesses> kernels =
        isSimplified_ ? analyseKernels(module, functions) : analyseSimplifiedCopy(module);
    writeJson(kernels);
    for (const KernelAccesses &kernel : kernels)
      if (!kernel.impurity.empty())
        warn("the kernel '" + llvm::demangle(kernel.name) + "' is annotated as pure and not taken for it: it " +
             kernel.impurity);
    if (!Exchange::isHostCompileMissing() &&
        !Exchange(compiler_.getLangOpts().CUID).leave(compiler_.getTargetOpts().CPU, kernels))
      warn("what was found of the kernels cannot be left for the host compile: there is no folder for temporary files");
    return PreservedAnalyses::all();
  }

private:
  void warn(llvm::StringRef text) {
    clang::DiagnosticsEngine &diagnostics = compiler_.getDiagnostics();
    diagnostics.Report(diagnostics.getCustomDiagID(clang::DiagnosticsEngine::Warning, "pumpgraph: %0")) << text;
  }

  void writeJson(const std::vector<KernelAccesses> &kernels) {
    if (options_.jsonFile.empty())
      return;
    std::error_code error;
    llvm::raw_fd_ostream file(options_.jsonFile, error, llvm::sys::fs::OF_Append);
    for (const KernelAccesses &kernel : kernels)
      file << toJson(kernel) << '\n';
    file.close();
    if (error || file.has_error())
      warn((llvm::Twine("cannot write ") + options_.jsonFile).str());
    file.clear_error();
  }

  clang::CompilerInstance &compiler_;
  Options options_;
  bool isSimplified_;
};

class HostPass : public llvm::PassInfoMixin<HostPass> {
public:
  HostPass(clang::CompilerInstance &compiler, std::shared_ptr<const DeviceResult> device)
      : compiler_(compiler), device_(std::move(device)) {}

  static bool isRequired() { return true; }

  PreservedAnalyses run(Module &module, llvm::ModuleAnalysisManager &) {
    const std::vector<HostKernel> kernels = findHostKernels(module);
    if (kernels.empty())
      return PreservedAnalyses::all();
    const size_t unknown = emitTable(module, kernels, *device_);
    if (unknown > 0) {
      clang::DiagnosticsEngine &diagnostics = compiler_.getDiagnostics();
      diagnostics.Report(diagnostics.getCustomDiagID(
          clang::DiagnosticsEngine::Warning,
          "pumpgraph: %0 of %1 kernels are unknown%select{: the device code was not compiled in the same run of the "
          "driver|}2"))
          << static_cast<unsigned>(unknown) << static_cast<unsigned>(kernels.size()) << device_->isThere;
    }
    return PreservedAnalyses::none();
  }

private:
  clang::CompilerInstance &compiler_;
  std::shared_ptr<const DeviceResult> device_;
};

class Action : public clang::PluginASTAction {
public:
  bool ParseArgs(const clang::CompilerInstance &compiler, const std::vector<std::string> &arguments) override {
    for (llvm::StringRef argument : arguments) {
      if (argument.consume_front("json=")) {
        options_.jsonFile = argument.str();
        continue;
      }
      clang::DiagnosticsEngine &diagnostics = compiler.getDiagnostics();
      diagnostics.Report(diagnostics.getCustomDiagID(clang::DiagnosticsEngine::Error,
                                                     "pumpgraph: unknown argument '%0'; it knows json=FILE"))
          << argument;
      return false;
    }
    return true;
  }

  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance &compiler, llvm::StringRef) override {
    const clang::LangOptions &language = compiler.getLangOpts();
    if (language.CUDA && language.CUDAIsDevice)
      addDevicePass(compiler);
    else if (language.CUDA)
      addHostPass(compiler);
    return std::make_unique<clang::ASTConsumer>();
  }

  ActionType getActionType() override { return AddBeforeMainAction; }

private:
  using Callback = std::function<void(llvm::PassBuilder &)>;

  void addDevicePass(clang::CompilerInstance &compiler) {
    // At this point calls are inlined and values are in registers, and no loop has been unrolled or vectorised.
    compiler.getCodeGenOpts().PassBuilderCallbacks.push_back(
        [&compiler, options = options_](llvm::PassBuilder &builder) {
          builder.registerOptimizerEarlyEPCallback([&compiler, options](llvm::ModulePassManager &passes,
                                                                        llvm::OptimizationLevel level,
                                                                        llvm::ThinOrFullLTOPhase) {
            passes.addPass(DevicePass(compiler, options, level != llvm::OptimizationLevel::O0));
          });
        });
  }

  static void addHostPass(clang::CompilerInstance &compiler) {
    // Taken now, so that the files do not stay if the source does not compile.
    const auto device = std::make_shared<const DeviceResult>(Exchange(compiler.getLangOpts().CUID).take());
    compiler.getCodeGenOpts().PassBuilderCallbacks.push_back([&compiler, device](llvm::PassBuilder &builder) {
      builder.registerPipelineStartEPCallback(
          [&compiler, device](llvm::ModulePassManager &passes, llvm::OptimizationLevel) {
            passes.addPass(HostPass(compiler, device));
          });
    });
  }

  Options options_;
};

/// A plugin reaches into the compiler's own data structures, which the next version lays out anew. Nothing of another
/// version is used here but the one function.
bool isOfThisVersion() {
  char wanted[32];
  std::snprintf(wanted, sizeof(wanted), "version %d.%d.", CLANG_VERSION_MAJOR, CLANG_VERSION_MINOR);
  const std::string version = clang::getClangFullVersion();
  if (version.find(wanted) != std::string::npos)
    return true;
  std::fprintf(stderr, "error: libPumpGraphAnnotate.so needs clang %s*; this is %s\n", wanted, version.c_str());
  std::_Exit(1);
}

[[maybe_unused]] const bool isRightCompiler = isOfThisVersion(); // before anything else is asked of it
const clang::FrontendPluginRegistry::Add<Action> registration("pumpgraph", "finds what CUDA kernels access");

} // namespace
} // namespace pumpgraph::annotate
