# Run MCP servers without blindly trusting them.
class Smcp < Formula
  desc "Run MCP servers without blindly trusting them"
  homepage "URL"
  version "VERSION"
  license "MIT"

  depends_on :linux
  url "URL/ARCHIVE"
  sha256 "SHA256"

  def install
    bin.install "smcp"
    bin.install_symlink "smcp" => "smcp-oci"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/smcp.bash" => "smcp"
    zsh_completion.install "completions/smcp.zsh" => "_smcp"
    fish_completion.install "completions/smcp.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/smcp --version")
  end
end
