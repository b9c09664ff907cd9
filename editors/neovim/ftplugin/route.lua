-- Starts `trc lsp` for a `.route` file. Settings, all before the file is opened:
--   vim.g.trc_command         { "trc", "lsp" }   how the server is started
--   vim.g.trc_set             {}                 values of params, as `--set` takes them: { tau = 0.5 }
--   vim.g.trc_format_on_save  true
-- Neovim 0.7 and later.

vim.bo.commentstring = "# %s"
vim.bo.expandtab = true
vim.bo.shiftwidth = 2

local buffer = vim.api.nvim_get_current_buf()

-- With a parser on the runtime path the colours are the tree's; docs/editors.md says how it is compiled.
if vim.treesitter.start and #vim.api.nvim_get_runtime_file("parser/route.so", false) > 0 then
  vim.treesitter.start(buffer, "route")
end

local file = vim.api.nvim_buf_get_name(buffer)
local root = vim.fn.fnamemodify(file, ":p:h")
local above = vim.fn.finddir(".git", root .. ";")
if above ~= "" then
  root = vim.fn.fnamemodify(above, ":p:h:h")
end

local config = {
  name = "trc",
  cmd = vim.g.trc_command or { "trc", "lsp" },
  root_dir = root,
  workspace_folders = { { uri = vim.uri_from_fname(root), name = vim.fn.fnamemodify(root, ":t") } },
  init_options = { set = vim.g.trc_set or vim.empty_dict() },
}

if vim.lsp.start then
  vim.lsp.start(config)
else -- before 0.8: one client a root
  _G.trc_clients = _G.trc_clients or {}
  local id = _G.trc_clients[root]
  if not id or not vim.lsp.get_client_by_id(id) then
    id = vim.lsp.start_client(config)
    _G.trc_clients[root] = id
  end
  if id then
    vim.lsp.buf_attach_client(buffer, id)
  end
end

if vim.g.trc_format_on_save ~= false then
  vim.api.nvim_create_autocmd("BufWritePre", {
    group = vim.api.nvim_create_augroup("trc_format_" .. buffer, {}),
    buffer = buffer,
    callback = function()
      if vim.lsp.buf.format then
        vim.lsp.buf.format({ timeout_ms = 2000, name = "trc" })
      else
        vim.lsp.buf.formatting_sync(nil, 2000)
      end
    end,
  })
end
