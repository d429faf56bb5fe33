// What every page of the benchmarks begins with.

/** Log in with the token in BENCH_TOKEN, which is so in no address and no process list, and wait until an empty JupyterLab is there. */
export async function openLab(page, url) {
  await page.goto(`${url}login`);
  await page.locator('#password_input').fill(process.env.BENCH_TOKEN);
  await page.locator('#login_submit').click();
  await page.waitForURL(address => !address.pathname.endsWith('/login'));
  await page.goto(`${url}lab?reset`);
  await page.waitForFunction(() => window.jupyterapp !== undefined, null, { timeout: 90_000 });
  await page.evaluate(() => window.jupyterapp.restored);
}
