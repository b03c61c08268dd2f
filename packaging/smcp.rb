# Run MCP servers without blindly trusting them.
class Smcp < Formula
  desc "Run MCP servers without blindly trusting them"
  homepage "URL"
  version "VERSION"
  license "MIT"

  on_macos do
    on_arm do
      ARCHIVE smcp_darwin_arm64.tar.gz
    end
    on_intel do
      ARCHIVE smcp_darwin_amd64.tar.gz
    end
  end

  on_linux do
    on_arm do
      ARCHIVE smcp_linux_arm64.tar.gz
    end
    on_intel do
      ARCHIVE smcp_linux_amd64.tar.gz
    end
  end

  def install
    bin.install "smcp"
    # Containers are Linux's.
    bin.install_symlink "smcp" => "smcp-oci" if OS.linux?
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/smcp.bash" => "smcp"
    zsh_completion.install "completions/smcp.zsh" => "_smcp"
    fish_completion.install "completions/smcp.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/smcp --version")
  end
end
