import { resolve } from 'path';
import { expect, setTheme, showPanel, test, type ITraining } from '../lab';

const SHOTS = resolve(__dirname, '../screenshots');

let training: ITraining;

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-health', { monitor: true });
});

test.afterAll(async () => {
  await training.process.end();
});

test('an alarm that arrives is counted at the icon and in the panel, told, and one click from its view', async ({
  open
}) => {
  test.setTimeout(120_000);
  const page = await open();
  const panel = await showPanel(page);
  await expect(panel.getByRole('option', { name: /gpt-health/ })).toHaveAttribute('aria-selected', 'true');
  const icon = page.locator('.jp-SideBar [data-id="megalens-panel"]');
  await expect(icon).not.toHaveAttribute('data-alarms');
  await panel.getByRole('button', { name: 'Health', exact: true }).click();
  const tab = page.locator('.jp-MegalensViewTab:visible');
  await expect(tab).toContainText(/Healthy for \d/, { timeout: 30_000 });
  training.tell('sick');
  const told = page
    .locator('.jp-toastContainer, .Toastify')
    .getByText(/gpt-health: first anomaly at step \d/);
  await expect(told).toBeVisible({ timeout: 30_000 });
  await expect(icon).toHaveAttribute('data-alarms', /\d/);
  await expect(panel.locator('.jp-MegalensRun-alarms')).toHaveText(/\d/);
  await expect(panel.locator('.jp-MegalensAlarmLine')).toContainText(
    /alarms?: first at step \d.*blocks\.1\.mlp\.fc1\.weight/
  );
  // The view that was open follows; another one of its own comes from the notification.
  const title = tab.locator('.jp-MegalensView-title').first();
  await expect(title).toContainText(/First anomaly at step \d.* of blocks\.1\.mlp\.fc1/);
  await page.locator('.lm-TabBar-tab', { hasText: 'Launcher' }).first().click();
  await page.getByRole('button', { name: 'Open Health' }).click();
  await expect(title).toContainText('First anomaly at step');
  await page.screenshot({ path: `${SHOTS}/lab-health-light.png` });
  await setTheme(page, 'JupyterLab Dark');
  await page.screenshot({ path: `${SHOTS}/lab-health-dark.png` });
  await setTheme(page, 'JupyterLab Light');
});
