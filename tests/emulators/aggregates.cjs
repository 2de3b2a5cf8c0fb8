// The KPL's aggregates as npm's aws-kinesis-agg writes and reads them; see aggregates.py.
// usage: NODE_PATH=FOLDER/node_modules node aggregates.cjs
const readline = require('node:readline');
const { RecordAggregator, deaggregateSync } = require('aws-kinesis-agg');

function write(records) {
  const aggregator = new RecordAggregator();
  for (const [key, hashKey, data] of records) {
    const record = { partitionKey: key, data: Buffer.from(data, 'hex') };
    if (hashKey !== null) record.explicitHashKey = hashKey;
    aggregator.addUserRecord(record);
  }
  return aggregator.build().data.toString('hex');
}

function read(aggregate) {
  const data = Buffer.from(aggregate, 'hex').toString('base64');
  let found;
  deaggregateSync({ data, partitionKey: 'a', sequenceNumber: '1' }, true, (error, records) => {
    if (error) throw error;
    found = records;
  });
  return found.map((record) => {
    if (record.subSequenceNumber === undefined) throw new Error('it is an aggregate');
    return [record.partitionKey, Buffer.from(record.data, 'base64').toString('hex')];
  });
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const wanted = JSON.parse(line);
  console.log(JSON.stringify('write' in wanted ? write(wanted.write) : read(wanted.read)));
});
