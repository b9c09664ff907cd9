vim.api.nvim_create_autocmd({ "BufRead", "BufNewFile" }, {
  pattern = "*.route",
  callback = function()
    vim.bo.filetype = "route"
  end,
})
