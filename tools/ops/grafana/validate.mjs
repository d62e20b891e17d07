// node validate.mjs FILE…: dashboards against the JSON schema made of dashboard.ts.
import { readFileSync } from 'node:fs';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const at = (name) => new URL(name, import.meta.url).pathname;
const schema = createGenerator({
  path: at('dashboard.ts'),
  tsconfig: at('tsconfig.json'),
  type: 'SolarDashboard',
  expose: 'none', // several plugins have an Options
}).createSchema('SolarDashboard');
const ajv = new Ajv({ allErrors: true, strict: false });
const matches = ajv.compile(schema);
const read = (path) => JSON.parse(readFileSync(path, 'utf8'));

// It must say no: each of these changes to a dashboard makes it none.
const broken = {
  'a panel without a description': (one) => delete one.panels[1].description,
  'a panel without a unit': (one) => delete one.panels[1].fieldConfig.defaults.unit,
  'a kind of panel that is not there': (one) => (one.panels[1].type = 'timeserie'),
  'a field that is not there': (one) => (one.panels[1].titel = 'x'),
  'an option of another type': (one) => (one.panels[1].options.legend.showLegend = 'yes'),
  'a style that is not there': (one) => (one.panels[1].fieldConfig.defaults.custom.drawStyle = 'dots'),
  'a variable of no kind': (one) => (one.templating.list[1].type = 'label'),
  'no version of the schema': (one) => delete one.schemaVersion,
};

let failed = false;
for (const path of process.argv.slice(2)) {
  const good = matches(read(path));
  failed ||= !good;
  console.log(good ? 'fits' : 'DOES NOT FIT', path);
  for (const error of good ? [] : matches.errors.slice(0, 20)) {
    console.log(' ', error.instancePath, error.message, JSON.stringify(error.params));
  }
  for (const [what, spoil] of Object.entries(broken)) {
    const one = read(path);
    spoil(one);
    if (matches(one)) {
      failed = true;
      console.log('NOT NOTICED', path, what);
    }
  }
}
process.exit(failed ? 1 : 0);
